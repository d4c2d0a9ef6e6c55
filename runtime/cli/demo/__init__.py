"""The demo: ShootingRange from message log to leader board, and what happens when everything is redelivered."""
