"""Batches: the options that apply to their messages, and the ledger that records their progress."""
