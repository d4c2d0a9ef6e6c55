"""Export and import of tables and of truncated versions, as verified Parquet files, without Spark."""

MARK = "_import"  # the partition of the row that marks a table during an import
