"""Documents of versions. Each attempt stores its documents before its commit, and deletes them on failure."""
