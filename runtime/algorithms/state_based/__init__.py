"""The state-based algorithm: every version is stored, and a duplicate is replayed on the version before its own."""
