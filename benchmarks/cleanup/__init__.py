"""Truncation of tables with very many streams: `python -m benchmarks cleanup`."""
