"""Delivery idempotency: the last hop, to a sender that takes part in no transaction."""
