"""What each algorithm costs, counted at tables in memory: requests, rows and bytes, but no times."""
