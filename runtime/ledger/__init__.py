"""Batches: their options and limits, and the ledger that records their progress."""

from __future__ import annotations
