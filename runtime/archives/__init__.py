"""Archives: rows and versions as Parquet files that can be verified, without Spark."""

MARK = "_import"  # the partition of the one row that a table has while it is imported
