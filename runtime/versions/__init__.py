"""Versions of states as rows: columns, runs, tail, head, the index of message ids, and the stream of them all."""
