"""The messages, states and handlers of the shooting range and the leader board."""

from uuid import UUID

from handlers import Context, Handler, Message, State, handles


class StartNewRound(Message):
    """The target moves to a position, and a new round begins."""

    game_id: UUID
    position: int


class FireAt(Message):
    game_id: UUID
    position: int


class Hit(Message):
    id: UUID
    game_id: UUID


class Missed(Message):
    id: UUID
    game_id: UUID


class ShootingRangeData(State):
    """The position of the target, and the number of shots in this round."""

    target_position: int = 0
    number_of_attempts: int = 0


class LeaderBoardData(State):
    """The numbers of hits and misses of a game."""

    number_of_hits: int = 0
    number_of_misses: int = 0


class LeaderBoard(Handler[LeaderBoardData]):
    """Keeps the score of one game."""

    @handles(by="game_id")
    def hit(self, state: LeaderBoardData, message: Hit, context: Context) -> LeaderBoardData:
        return state.model_copy(update={"number_of_hits": state.number_of_hits + 1})

    @handles(by="game_id")
    def missed(self, state: LeaderBoardData, message: Missed, context: Context) -> LeaderBoardData:
        return state.model_copy(update={"number_of_misses": state.number_of_misses + 1})


MAX_ATTEMPTS_IN_A_ROUND = 2
POSITIONS = 100


class ShootingRange(Handler[ShootingRangeData]):
    """One game on one range. A shot hits or misses, and after two shots the target moves."""

    @handles(by="game_id")
    def start_new_round(
        self, state: ShootingRangeData, message: StartNewRound, context: Context
    ) -> ShootingRangeData:
        return state.model_copy(update={"target_position": message.position, "number_of_attempts": 0})

    @handles(by="game_id")
    def fire_at(self, state: ShootingRangeData, message: FireAt, context: Context) -> ShootingRangeData:
        """Publish whether the shot hit, and move the target at the end of a round."""
        if message.position == state.target_position:
            context.publish(Hit(id=context.new_guid(), game_id=message.game_id))
        else:
            context.publish(Missed(id=context.new_guid(), game_id=message.game_id))

        if state.number_of_attempts + 1 >= MAX_ATTEMPTS_IN_A_ROUND:
            target = context.random.randrange(POSITIONS)
            return state.model_copy(update={"target_position": target, "number_of_attempts": 0})
        return state.model_copy(update={"number_of_attempts": state.number_of_attempts + 1})
