"""The user's source as it stands: modules found and parsed, never imported, and the names that they bind."""
