"""Archives: rows and versions as Parquet files that can be verified, without Spark."""
