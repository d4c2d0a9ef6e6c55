"""The algorithms with an outbox: alone, with a de-duplication store, with tokens; and the two passes of batches."""
