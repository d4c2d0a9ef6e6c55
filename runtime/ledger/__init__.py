"""Batches: what one decides for its messages, and the ledger that tells how far each has come."""

from __future__ import annotations
