"""The app to name on the command line: `--app samples.shooting_range:app`."""

from handlers import App
from samples.shooting_range.handlers import LeaderBoard, ShootingRange

app = App(ShootingRange, LeaderBoard)
