"""Structured Streaming: each micro-batch of a query is a batch with the id QUERY-EPOCH."""
