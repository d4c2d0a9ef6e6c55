"""Tokens: created once for what counts, under fresh ids, refused when too late, and none left over."""

from itertools import count

import pytest

from eventstore import ConcurrencyConflictError, drive
from handlers import App, Context, Handler, Message, State, handles
from runtime.algorithms.outbox.stores import Token, TokenStore, first_name, issue
from runtime.processor import Processor
from tests.unit.runtime.algorithms.game import SHOT, assert_one_hit, begun, calls, shoot
from tests.unit.runtime.algorithms.world import At, CrashError, World, crash
from tests.unit.runtime.diary import delivery, write
from tests.unit.runtime.tables import memory_table, rows
from tests.unit.runtime.worker import ends

PARENT = Token("chain", "first", "Bell")


class Rang(Message):
    tower: str


class Heard(Message):
    tower: str


class Data(State):
    rings: int = 0


class Bell(Handler[Data]):
    @handles(by="tower")
    def rang(self, state: Data, message: Rang, context: Context) -> Data:
        for _ in range(60):
            context.publish(Heard(tower=message.tower))
        return state.model_copy(update={"rings": state.rings + 1})


class Ear(Handler[Data]):
    @handles(by="tower")
    def heard(self, state: Data, message: Heard, context: Context) -> Data:
        return state.model_copy(update={"rings": state.rings + 1})


class OtherEar(Ear):
    """Takes the same messages."""


@pytest.fixture
def store() -> TokenStore:
    return TokenStore(memory_table())


def tokens_of(attempt: str, number: int = 2) -> list[Token]:
    return [Token("chain", f"{attempt}-{index}", "Ear") for index in range(number)]


def test_tokens_are_there_from_creation_to_deletion(store):
    drive(store.issue([PARENT]))
    (token, other) = tokens_of("a")

    drive(store.create(PARENT, [token, other]))
    drive(store.delete(token))
    drive(store.delete(token))

    assert [drive(store.exists(each)) for each in (PARENT, token, other)] == [True, False, True]


def test_no_tokens_are_created_once_the_parent_is_gone(store):
    # This is what fences a slow attempt: others may have cleaned up already, and nobody would delete its tokens.
    drive(store.issue([PARENT]))
    drive(store.delete(PARENT))

    with pytest.raises(ConcurrencyConflictError):
        drive(store.create(PARENT, tokens_of("late")))

    assert not any(drive(store.exists(token)) for token in tokens_of("late"))


def test_tokens_of_one_handler_are_not_those_of_another(store):
    drive(store.issue([PARENT]))

    assert not drive(store.exists(PARENT._replace(handler="Ear")))


def test_a_message_that_is_issued_twice_before_it_is_sent_has_one_token(store):
    first = drive(issue(store, write("a"), ["Diary", "Other"]))
    drive(store.delete(Token.named((first.headers or {})["token"], "Diary")))

    again = drive(issue(store, write("a"), ["Diary", "Other"]))

    assert again == first
    assert not drive(store.exists(Token.named((first.headers or {})["token"], "Diary")))


def test_a_message_keeps_its_other_headers(store):
    issued = drive(issue(store, write("a", headers={"trace": "7"}), ["Diary"]))

    assert set(issued.headers or {}) == {"trace", "token"}


def test_a_message_for_several_handlers_is_processed_by_each_of_them_once():
    world = World("tokens", App(Bell, Ear, OtherEar))

    world.deliver(delivery("m", "Rang", {"tower": "east"}))
    world.consume()
    for output in list(world.published):
        assert ends(world.deliver(output.envelope())) == ["duplicate", "duplicate"]

    assert [world.state(name, "east")["rings"] for name in ("Bell", "Ear", "OtherEar")] == [1, 60, 60]
    assert world.garbage() == []


def test_each_attempt_has_tokens_of_its_own_and_those_that_lost_are_deleted():
    # Given an attempt that died when its tokens were created, before they were committed
    world = begun("tokens")
    with pytest.raises(CrashError):
        shoot(world, after=At(calls("tokens").index("other transact") + 1, crash))
    (lost,) = [key for key in rows(world.other) if "LeaderBoard" in key[1]]

    # When the next one finishes the message
    world.deliver(SHOT)

    # Then the message carries a token of that attempt, and the other is gone
    (output,) = world.published
    left = {key[1] for key in rows(world.other) if "LeaderBoard" in key[1]}
    assert left == {Token.named(output.headers["token"], "LeaderBoard").row_key}
    assert lost[1] not in left
    world.consume()
    assert_one_hit(world)


def test_a_slow_attempt_cannot_create_tokens_when_others_have_cleaned_up():
    # Given an attempt that stops just before it creates its tokens, until all is done without it
    world = begun("tokens")

    async def others() -> None:
        await world.process(SHOT)
        await world.consuming()

    # When it goes on
    shoot(world, before=At(calls("tokens").index("other transact") + 1, others))

    # Then it has created none, and published nothing again
    assert len(world.published) == 1
    assert_one_hit(world)


@pytest.mark.parametrize("crashed", range(1, 10))
def test_copies_with_different_tokens_of_a_message_that_is_not_finished_leave_none(crashed):
    # Given a message that is not finished, and a copy that somebody gave another token
    world = begun("tokens")
    with pytest.raises(CrashError):
        shoot(world, before=At(calls("tokens").index("publish") + 1, crash))
    drive(TokenStore(world.other).issue([Token("second", "other", "ShootingRange")]))
    second = SHOT._replace(headers={"token": "second/other"})

    # When that one is processed, with a crash, and both are redelivered
    with pytest.raises(CrashError):
        drive(world.process(second, before=At(crashed, crash)))
    assert ends(world.deliver(second, SHOT)) == ["duplicate", "duplicate"]
    world.consume()

    # Then the message has its effect once
    assert_one_hit(world)


@pytest.mark.parametrize("name", ["nonsense", "/", "a/", "a b/c", "a/b/c", "x" * 600 + "/first"])
def test_a_token_whose_name_is_none_is_taken_for_no_token(name):
    world = World("tokens")

    (outcome,) = world.deliver(SHOT._replace(headers={"token": name}))

    assert ends([outcome]) == ["invalid_envelope"]


@pytest.mark.parametrize("victim", ["victim", "0", "21260105-1bf4-4ac1-8aeb-9020ca4b6fb4"])
def test_a_message_cannot_take_the_token_of_another_one(victim):
    # Given a message with its token, and another one under an id of its own that names the same token
    world = World("tokens")
    drive(issue(TokenStore(world.other), SHOT._replace(message_id=victim), ["ShootingRange"]))
    hostile = SHOT._replace(message_id="hostile", headers={"token": first_name(victim)})

    (outcome,) = world.deliver(hostile)

    assert ends([outcome]) == ["invalid_envelope"]
    assert drive(TokenStore(world.other).exists(Token.named(first_name(victim), "ShootingRange")))


def test_what_a_message_from_outside_names_as_its_token_is_replaced(store):
    issued = drive(issue(store, write("a", headers={"token": first_name("victim")}), ["Diary"]))

    assert issued.headers == {"token": first_name("a")}


def test_the_ids_of_attempts_come_from_where_they_are_said_to_come_from():
    from runtime.algorithms.outbox.algorithm import OutboxOneByOne
    from runtime.algorithms.outbox.variants import TokenBased
    from runtime.messages.parsing import Prepared, prepare
    from samples.shooting_range import app
    from tests.unit.runtime.games import GAME, fire

    table, tokens, numbers = memory_table(), TokenStore(memory_table()), count(1)
    published = []

    async def publish(output) -> None:
        published.append(output.headers["token"])

    algorithm = TokenBased(
        table=table, tokens=tokens, handler=app.handlers["ShootingRange"],
        recipients=lambda _: ["LeaderBoard"], new_id=lambda: f"attempt{next(numbers)}",
    )  # fmt: skip
    message = prepare(algorithm.handler, str(GAME), drive(issue(tokens, fire(1, 1), ["ShootingRange"])))
    assert isinstance(message, Prepared)
    drive(OutboxOneByOne(algorithm=algorithm, publish=publish).process(message))

    (name,) = published
    assert name.endswith("/attempt1-0")


@pytest.mark.parametrize("algorithm", ["state-based", "outbox", "deduplication-store"])
def test_other_algorithms_issue_nothing(algorithm):
    world = World(algorithm)
    worker: Processor = world.worker()

    assert drive(worker.issue(SHOT)) == SHOT
    assert world.calls == []
