"""State versions as rows: columns, runs, the tail, the head, the index of ids, and the stream that they make."""

from __future__ import annotations
