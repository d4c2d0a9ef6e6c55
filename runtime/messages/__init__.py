"""Messages: envelopes, ids, fingerprints, parsing, and what became of a delivery."""
