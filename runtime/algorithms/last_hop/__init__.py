"""Idempotent delivery: the last hop, by a sender that takes part in no transaction."""
