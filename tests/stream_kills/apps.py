"""The shooting range, and the same with another rule: a second revision, which keeps the first one to replay by."""

from handlers import App, Context, handles
from samples.shooting_range.handlers import (
    POSITIONS,
    FireAt,
    Hit,
    LeaderBoard,
    ShootingRange,
    ShootingRangeData,
)


class GenerousRange(ShootingRange, name="ShootingRange"):
    """A range on which, from the second revision on, every shot hits."""

    @handles(by="game_id", revision=2)
    def fire_at_anything(
        self, state: ShootingRangeData, message: FireAt, context: Context
    ) -> ShootingRangeData:
        context.publish(Hit(id=context.new_guid(), game_id=message.game_id))
        return state.model_copy(update={"target_position": context.random.randrange(POSITIONS)})


first = App(ShootingRange, LeaderBoard)
second = App(GenerousRange, LeaderBoard)
