"""The state-based algorithm: every version is kept, and a duplicate is replayed on the one before its own."""
