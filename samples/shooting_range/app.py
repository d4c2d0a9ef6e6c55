"""The app to name on the command line: `--app samples.shooting_range:app`."""

from handlers import App
from samples.shooting_range.leader_board import LeaderBoard
from samples.shooting_range.shooting_range import ShootingRange

app = App(ShootingRange, LeaderBoard)
