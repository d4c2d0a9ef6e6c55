"""Benchmarks: this project beside the ceiling of its engine, and beside other ways to the same end, on one machine.

`python -m benchmarks --help` says how to run them, `README.md` how to read what they print.
"""
