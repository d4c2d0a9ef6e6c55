"""Skew and memory: batches as lopsided as they come, and what Spark's Python workers take for them.

`python -m benchmarks skew --help` says how to run it, `benchmarks/README.md` how to read what it prints.
"""
