"""A shooting range with a moving target, and a leader board that counts its hits and misses.

Laid out for reading: `messages`, `states`, `shooting_range`, `leader_board`, `app`, and `log`, which generates
message logs. The rules are those of the article on state-based consistent messaging.
"""

from samples.shooting_range.app import app

__all__ = ["app"]
