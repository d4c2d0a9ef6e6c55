"""A shooting range with a moving target, and a leader board that counts its hits and misses.

Use `--app samples.shooting_range:app`. `log` generates message logs. The rules are those of the article on
state-based consistent messaging.
"""

from handlers import App
from samples.shooting_range.handlers import LeaderBoard, ShootingRange

app = App(ShootingRange, LeaderBoard)
