"""Messages: envelopes, ids, limits, fingerprints, parsing and outcomes."""
