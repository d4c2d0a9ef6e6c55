"""The implementations of the table port, one per module. All raise the same errors."""
