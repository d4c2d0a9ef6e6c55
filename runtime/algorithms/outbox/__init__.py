"""The algorithms with an outbox: alone, with a deduplication store, and with tokens."""
