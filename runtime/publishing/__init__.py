"""Publishing: the outputs of a batch that is done are sent to a target outside, by slices, each with its mark."""
