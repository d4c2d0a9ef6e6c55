"""Letters as operators see them: which there are, which are given up, and those that belong to no stream."""
