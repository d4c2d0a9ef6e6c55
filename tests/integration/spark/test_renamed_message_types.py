"""A type that was renamed takes logs under its old name, in the JVM too, and its copies under both."""

from __future__ import annotations

from uuid import UUID

import pytest

from handlers import App, Context, Handler, Message, State, handles
from runtime.spark import verify
from tests.support.logs import GAME, row, write_lines
from tests.support.outcomes import by_status, published, statuses


class Fired(Message):
    game_id: UUID


class Hit(Message):
    game_id: UUID


class Shot(Message, aliases=("Fired", "Shoot")):
    game_id: UUID


class TargetHit(Message, aliases=("Hit",)):
    game_id: UUID


class Shots(State):
    count: int = 0


class Range(Handler[Shots]):
    @handles(by="game_id")
    def fired(self, state: Shots, message: Fired, context: Context) -> Shots:
        context.publish(Hit(game_id=message.game_id))
        return Shots(count=state.count + 1)


class Board(Handler[Shots]):
    @handles(by="game_id")
    def hit(self, state: Shots, message: Hit, context: Context) -> Shots:
        return Shots(count=state.count + 1)


class NewRange(Handler[Shots], name="Range"):
    """Takes the renamed type, and publishes under the old name for what it handled before."""

    @handles(by="game_id", revision=1)
    def fired(self, state: Shots, message: Shot, context: Context) -> Shots:
        context.publish(Hit(game_id=message.game_id))
        return Shots(count=state.count + 1)

    @handles(by="game_id", revision=2)
    def shot(self, state: Shots, message: Shot, context: Context) -> Shots:
        context.publish(TargetHit(game_id=message.game_id))
        return Shots(count=state.count + 1)


class NewBoard(Handler[Shots], name="Board"):
    @handles(by="game_id")
    def hit(self, state: Shots, message: TargetHit, context: Context) -> Shots:
        return Shots(count=state.count + 1)


OLD, NEW = App(Range, Board), App(NewRange, NewBoard)


def shots(type_: str, *numbers: int):
    return [row(number, type_, {"game_id": GAME.upper()}) for number in numbers]


@pytest.mark.thorough
def test_copies_under_the_old_and_the_new_name_are_duplicates(place):
    # Given messages that were handled under the old name, and published under it
    place.app = OLD
    first = place.run(write_lines(place.folder / "old.jsonl", shots("Fired", 1, 2)), cascade=True)

    # When they are redelivered under both names, with new ones under every name
    place.app = NEW
    again = [*shots("Fired", 1), *shots("Shot", 2), *shots("Shoot", 3), *shots("Shot", 4)]
    log = write_lines(place.folder / "new.jsonl", again)
    second = place.run(log, cascade=True)

    # Then the new ones are handled, and the old ones publish again what they published
    assert by_status(second) == {
        ("Range", "duplicate"): 2,
        ("Range", "processed"): 2,
        ("Board", "duplicate"): 2,
        ("Board", "processed"): 2,
    }
    assert [output[1] for output in sorted(published(second), key=lambda output: output[3])] == [
        "Hit",
        "Hit",
        "TargetHit",
        "TargetHit",
    ]
    assert set(published(first)) < set(published(second))

    # ... and a verification finds that all is as it was
    assert verify(place.spark, log, NEW, store=place.store, table=place.table, cascade=True).is_clean


def test_without_the_alias_the_old_name_is_no_type(place):
    place.app = App(NewBoard)

    outcomes = place.run(write_lines(place.folder / "log.jsonl", [*shots("Hit", 1), *shots("Struck", 2)]))

    assert sorted(statuses(outcomes).values()) == [["processed"], ["unknown_type"]]
