"""How cost grows: time and store requests against one quantity at a time.

`python -m benchmarks growth --help` says how to run it, `docs/growth.md` shows what comes out and why.
"""
