"""Cleaning a table up: what may be cut and for how long it is kept, and who is at it."""

from __future__ import annotations
