"""Batches: their options and limits, and the ledger that records their progress."""
