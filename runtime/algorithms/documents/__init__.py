"""Documents beside outputs: prepare, commit, publish; register, clean up."""
