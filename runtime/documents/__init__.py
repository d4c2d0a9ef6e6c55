"""Documents that versions refer to. Each attempt stores its own before it commits, and deletes them if it fails."""
