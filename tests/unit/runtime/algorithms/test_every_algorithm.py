"""Every algorithm: how it is chosen, what it costs, what it refuses, and what is durable when."""

import re
from collections import Counter
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from eventstore import Operation, drive
from handlers import App, Context, Handler, Message, handles
from runtime import Processor, StoredDataError, UsageError
from runtime.versions.limits import MAX_STATE_BYTES
from tests.unit.runtime import diary
from tests.unit.runtime.accidents import At, CrashError, crash
from tests.unit.runtime.algorithms.game import GAME, SHOT, assert_one_hit, begun, calls, fire, shoot, start
from tests.unit.runtime.algorithms.world import ALGORITHMS, WITH_OUTBOX, World
from tests.unit.runtime.bells import Rings, rang
from tests.unit.runtime.diary import DIARY, misbehave, write
from tests.unit.runtime.tables import contents, memory_table
from tests.unit.runtime.test_processor import ignore
from tests.unit.runtime.worker import ends

every_algorithm = pytest.mark.parametrize("algorithm", ALGORITHMS)
every_outbox = pytest.mark.parametrize("algorithm", WITH_OUTBOX)


def test_another_name_is_refused_with_the_names_there_are():
    with pytest.raises(UsageError, match="use one of state-based, outbox, deduplication-store, tokens"):
        Processor(diary.app, memory_table(), ignore, algorithm="inbox")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("store", "user"), [("deduplication_store", "deduplication-store"), ("token_store", "tokens")]
)
def test_a_store_that_the_algorithm_does_not_use_is_refused(store, user):
    given: dict[str, Any] = {store: memory_table()}

    for algorithm in set(ALGORITHMS) - {user}:
        with pytest.raises(UsageError, match=f"Only the algorithm {user} .*: omit it with {algorithm}."):
            Processor(diary.app, memory_table(), ignore, algorithm=algorithm, **given)


@every_algorithm
def test_the_ids_and_tokens_may_stand_beside_the_states(table, algorithm):
    world = World(algorithm, diary.app, states=table, other=table)

    outcomes = world.deliver(write("a"), write("a"), write("b"))

    assert ends(outcomes) == ["processed", "duplicate", "processed"]
    assert world.garbage() == []
    assert drive(world.worker().sweep()) == 0


def test_message_ids_that_no_row_key_can_hold_are_told_apart():
    world = World("deduplication-store", diary.app)
    ids = ["/" * 255, "/" * 254 + "#", "x" * 121, "x" * 120, "é/%"]

    first = world.deliver(*(write("line", each) for each in ids))
    again = world.deliver(*(write("line", each) for each in ids))

    assert ends(first) == ["processed"] * 5
    assert ends(again) == ["duplicate"] * 5


# The scenarios of the article, the same for every algorithm: what is delivered more than once has its effect once.


def shots(world: World) -> Counter[str]:
    return Counter({output.message_id: output.type for output in world.published}.values())


@every_algorithm
@pytest.mark.parametrize("order", sorted(set(permutations([fire(1, 1), fire(1, 1), start(2, 2)]))))
def test_a_shot_and_its_copy_in_this_round_or_the_next_hit_or_miss_once(algorithm, order):
    world = World(algorithm)

    world.deliver(start(1, 1))
    outcomes = world.deliver(*order)

    assert sorted(ends(outcomes)) == ["duplicate", "processed", "processed"]
    assert sum(shots(world).values()) == 1
    assert shots(world) == {"Hit": 1} or order[0] == start(2, 2)
    assert len({(output.message_id, output.body.encode()) for output in world.published}) == 1


# A copy that comes when its message is finished returns early, and cleans up what a crash has left.


def test_an_early_return_leaves_the_entry_of_another_token_alone():
    # Given an entry that waits to be sent
    world = begun("tokens")
    with pytest.raises(CrashError):
        shoot(world, before=At(calls("tokens").index("publish") + 1, crash))

    # When a copy comes whose token never was
    stranger = SHOT._replace(headers={"token": "nowhere/other"})
    outcomes = world.deliver(stranger)

    # Then that does not prove that the outputs are published
    assert ends(outcomes) == ["duplicate"]
    entity = world.entity("ShootingRange", str(GAME))
    assert entity is not None
    assert entity.pending == 1
    world.deliver(SHOT)
    world.consume()
    assert_one_hit(world)


# In every algorithm, a copy under another name of its type is a copy, and another message is none.


class Chimed(Message, aliases=("Pealed",)):
    tower: str
    loud: bool = False


class Chimes(Handler[Rings]):
    @handles(by="tower")
    def chimed(self, state: Rings, message: Chimed, context: Context) -> Rings:
        return Rings(rings=state.rings + 1)


@every_algorithm
@pytest.mark.parametrize("names", [("Chimed", "Pealed"), ("Pealed", "Chimed")])
def test_a_copy_under_another_name_is_a_duplicate_and_another_message_is_none(algorithm, names):
    world = World(algorithm, App(Chimes))
    copies = [rang("a", message_type=name)[0] for name in names]

    outcomes = world.deliver(*copies, *rang("a", message_type=names[1], body={"tower": "east", "loud": True}))

    # With tokens, one that comes after the first was processed has no token left: it is a duplicate of it.
    other = "duplicate" if algorithm == "tokens" else "id_reused"
    assert ends(outcomes) == ["processed", "duplicate", other]


# What is told to others, or relied on by the next step, survives a power cut by then: each store is told in time.


@every_algorithm
def test_states_are_durable_before_outputs_and_ids_and_tokens_before_states(algorithm):
    made = calls(algorithm)
    before = made[: made.index("publish")]
    last = max(number for number, call in enumerate(before) if call == "states transact")
    assert "states barrier" in before[last:]

    changes = [number for number, call in enumerate(made) if call == "other transact"]
    assert bool(changes) is (algorithm in ("deduplication-store", "tokens"))
    assert all(made[number + 1] == "other barrier" for number in changes)


@every_algorithm
def test_a_message_without_outputs_is_durable_before_it_is_acknowledged(algorithm):
    world = begun(algorithm)

    world.deliver(start(2, 2))

    first = world.calls.index("states transact")
    assert "states barrier" in world.calls[first:]


@pytest.mark.parametrize("algorithm", ["state-based", "outbox"])
def test_a_duplicate_is_durable_before_it_is_acknowledged(algorithm):
    # Whoever stored it may not have come so far. With the others, their store is written after that.
    world = begun(algorithm)
    world.deliver(SHOT)

    world.deliver(SHOT)

    assert "states barrier" in world.calls


DOCS = Path(__file__).parents[4] / "docs" / "algorithms.md"

NEW = {
    "state-based": ["states query", "states transact"],
    "outbox": ["states get", "states transact", "states transact"],
    "deduplication-store": [
        "states get",
        "other get",
        *["states transact", "other transact"],
        "states transact",
    ],
    "tokens": ["states get", "other get", *["states transact", "other transact"] * 2, "states transact"],
}
DUPLICATE = {
    "state-based": ["states query"],
    "outbox": ["states get"],
    "deduplication-store": ["states get", "other get"],
    "tokens": ["states get", "other get"],
}
SILENT = {
    "state-based": ["states query", "states transact"],
    "outbox": ["states get", "states transact"],
    "deduplication-store": NEW["deduplication-store"],
    "tokens": NEW["deduplication-store"],
}


def requests(world: World) -> list[str]:
    """Return the calls that are requests to a table service: a barrier is none."""
    return [call for call in world.calls if call != "publish" and not call.endswith("barrier")]


@every_algorithm
@pytest.mark.parametrize(
    ("before", "message", "expected"),
    [
        ([], SHOT, NEW),
        ([], start(2, 2), SILENT),
        ([SHOT], SHOT, DUPLICATE),
        ([start(number, 1) for number in range(2, 60)], SHOT, NEW),
    ],
    ids=["an output for another handler", "no outputs", "a duplicate", "a history"],
)
def test_requests(algorithm, before, message, expected):
    world = begun(algorithm)
    world.deliver(*before)

    world.deliver(message)

    assert requests(world) == expected[algorithm]


def test_outputs_that_no_handler_takes_need_no_tokens_and_a_message_from_outside_costs_one_request():
    world = World("tokens", diary.app)

    world.deliver(write("a"))

    assert requests(world) == SILENT["tokens"]
    assert "token" not in world.published[0].headers
    assert world.sent == [{"other transact": 1}]


@pytest.mark.parametrize(
    ("kind", "requests"),
    [
        ("new message with an output for a handler", NEW),
        ("new message without outputs", SILENT),
        ("duplicate of a recent message", DUPLICATE),
    ],
)
def test_the_documentation_says_the_same(kind, requests):
    (row,) = re.findall(rf"^\| requests, {kind} \| (.*) \|$", DOCS.read_text(), re.MULTILINE)

    assert row.split(" | ") == [str(len(requests[algorithm])) for algorithm in ALGORITHMS]


# A message that must not be handled is a dead letter with its reason, whatever the algorithm. No state changes.


BAD = {
    "a handler that fails": (misbehave("fail", "m"), "handler_error"),
    "a handler that changes its input": (misbehave("set an attribute", "m"), "handler_error"),
    "a state too large": (write("x" * MAX_STATE_BYTES, "m"), "state_too_large"),
    "a key too long": (write("x", "m", "d" * 600), "key_too_long"),
    "a body that is none": (write("x", "m")._replace(body="{"), "invalid_body"),
    "a field of another type": (write("x", "m")._replace(body='{"diary":"d-1","line":7}'), "invalid_body"),
}


@every_algorithm
@pytest.mark.parametrize("bad", BAD)
def test_a_dead_letter_has_its_reason_and_changes_no_state_and_its_copies_give_the_same(algorithm, bad):
    message, reason = BAD[bad]
    world = World(algorithm, diary.app)
    world.deliver(write("first"))

    (outcome,) = world.deliver(message)

    assert ends([outcome]) == [reason]
    assert outcome.error
    assert world.state("Diary", DIARY)["lines"] == ["first"]
    kept = contents(world.states)
    assert world.deliver(message) == [outcome]
    assert contents(world.states) == kept
    assert ends(world.deliver(write("next"))) == ["processed"]


@every_outbox
def test_another_message_with_the_id_of_one_that_is_not_finished_is_told_from_it(algorithm):
    world = World(algorithm, diary.app)
    with pytest.raises(CrashError):
        drive(world.process(write("a", "m"), before=lambda call: crash() if call == "publish" else None))

    assert ends(world.deliver(write("b", "m"))) == ["id_reused"]
    assert world.published == []


def test_a_message_without_a_token_is_a_dead_letter_that_says_what_to_do():
    (outcome,) = drive(World("tokens", diary.app).worker().process(write("a")))

    assert ends([outcome]) == ["invalid_envelope"]
    assert "has no token: issue one before sending it" in (outcome.error or "")


@every_outbox
def test_a_table_of_another_algorithm_is_refused_with_a_sentence(algorithm):
    world = World(algorithm, diary.app)
    world.deliver(write("a"))
    other = World("outbox" if algorithm != "outbox" else "tokens", diary.app, states=world.states)

    with pytest.raises(UsageError, match=f"Diary-d-1 was processed with the algorithm {algorithm}"):
        other.deliver(write("b"))


@pytest.mark.parametrize("damage", [b"", b"\xc1", b"\x92\x09\x90", b"\x92\x01\x91\x91\x01"])
def test_an_outbox_that_cannot_be_read_is_told(damage):
    world = World("outbox", diary.app)
    world.deliver(write("a"))
    drive(world.states.transact("Diary-d-1", [Operation.merge("ENTITY", {"Outbox": damage})]))

    with pytest.raises(StoredDataError, match="The outbox of an entity"):
        world.deliver(write("b"))
