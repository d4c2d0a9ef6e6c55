"""The mark of a table that is being imported, in a module that whoever only looks for it imports without pyarrow."""

MARK = "_import"
"""The partition of the one row that a table has while it is imported."""
