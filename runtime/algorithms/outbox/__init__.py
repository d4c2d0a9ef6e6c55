"""The algorithms with an outbox: alone, with a de-duplication store, and with tokens."""
