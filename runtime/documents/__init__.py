"""Documents that a version refers to: stored before it, under names of the attempt, and deleted when that one lost."""
