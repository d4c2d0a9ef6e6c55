"""The leader board: counts what the shooting range tells."""

from handlers import Context, Handler, handles
from samples.shooting_range.messages import Hit, Missed
from samples.shooting_range.states import LeaderBoardData


class LeaderBoard(Handler[LeaderBoardData]):
    """The score of one game."""

    @handles(by="game_id")
    def hit(self, state: LeaderBoardData, message: Hit, context: Context) -> LeaderBoardData:
        """Count a hit."""
        return state.model_copy(update={"number_of_hits": state.number_of_hits + 1})

    @handles(by="game_id")
    def missed(self, state: LeaderBoardData, message: Missed, context: Context) -> LeaderBoardData:
        """Count a miss."""
        return state.model_copy(update={"number_of_misses": state.number_of_misses + 1})
