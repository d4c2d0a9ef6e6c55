"""What runs in Python workers: groups of deliveries come in, are handled stream by stream, and outcomes go out."""

from __future__ import annotations
