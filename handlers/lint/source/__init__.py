"""The user's source: modules found and parsed, never imported, and the names that they bind."""
