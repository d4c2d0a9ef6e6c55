"""Refusals in every algorithm: a dead letter has its reason, and stays one."""

import json
from collections.abc import Sequence
from itertools import product

import pytest

from eventstore import Operation, Table, drive
from handlers import App, Context, Handler, Message, State, handles
from runtime import Envelope, StoredDataError, UsageError
from runtime.algorithms.choice import AlgorithmName
from runtime.algorithms.outbox.entity import MAX_OUTBOX_BYTES
from runtime.algorithms.outbox.stores import TokenStore, issue
from runtime.ledger.batch import BatchContext
from runtime.messages.outcome import Outcome
from runtime.versions.limits import MAX_STATE_BYTES
from tests.unit.runtime import diary
from tests.unit.runtime.accidents import At, CrashError, crash, disturbed_once, lose_answer
from tests.unit.runtime.algorithms.world import ALGORITHMS, WITH_OUTBOX, World
from tests.unit.runtime.diary import DIARY, misbehave, write
from tests.unit.runtime.tables import contents, memory_table
from tests.unit.runtime.worker import Worker, ends

# A message that must not be handled is a dead letter with its reason, whatever the algorithm. No state changes.


BAD = {
    "a handler that fails": (misbehave("fail", "m"), "handler_error"),
    "a handler that changes its input": (misbehave("set an attribute", "m"), "handler_error"),
    "a state too large": (write("x" * MAX_STATE_BYTES, "m"), "state_too_large"),
    "a key too long": (write("x", "m", "d" * 600), "key_too_long"),
    "a body that is none": (write("x", "m")._replace(body="{"), "invalid_body"),
}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
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


def unpublished(world: World, *messages: Envelope) -> None:
    """Let a worker die before it publishes what each message makes."""
    for message in messages:
        with pytest.raises(CrashError):
            drive(world.process(message, before=lambda call: crash() if call == "publish" else None))


@pytest.mark.parametrize("algorithm", WITH_OUTBOX)
def test_another_message_with_the_id_of_one_that_is_not_finished_is_told_from_it(algorithm):
    world = World(algorithm, diary.app)
    unpublished(world, write("a", "m"))

    assert ends(world.deliver(write("b", "m"))) == ["id_reused"]
    assert world.published == []


@pytest.mark.parametrize("algorithm", WITH_OUTBOX)
def test_an_entry_that_does_not_fit_is_a_dead_letter_until_others_are_finished(algorithm):
    # Given an entity whose outbox has unpublished outputs of many messages
    world, large = World(algorithm, diary.app), write("x" * 50_000, "large")
    for number in range(MAX_OUTBOX_BYTES // 100_000):
        unpublished(world, write(str(number) * 50_000, f"m-{number}"))
        world.deliver(misbehave("burn the diary", f"burn-{number}"))
    assert ends(world.deliver(large)) == ["state_too_large"]

    drive(world.worker().sweep())

    assert ends([*world.deliver(large), *world.redrive(large)]) == ["state_too_large", "processed"]


def test_a_message_without_a_token_is_a_dead_letter_that_says_what_to_do():
    (outcome,) = drive(World("tokens", diary.app).worker().process(write("a")))

    assert ends([outcome]) == ["invalid_envelope"]
    assert "has no token: issue one before sending it" in (outcome.error or "")


@pytest.mark.parametrize("algorithm", WITH_OUTBOX)
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


# A refusal lasts: whatever crashes and whatever is redelivered, a message that was refused stays refused.


ACCOUNT = "a-1"


class Deposited(Message):
    account: str
    amount: int


class Withdrawn(Message):
    account: str
    amount: int


class Balance(State):
    amount: int = 0


class Account(Handler[Balance]):
    @handles(by="account")
    def deposited(self, state: Balance, message: Deposited, context: Context) -> Balance:
        return Balance(amount=state.amount + message.amount)

    @handles(by="account")
    def withdrawn(self, state: Balance, message: Withdrawn, context: Context) -> Balance:
        if message.amount > state.amount:
            problem = f"There are {state.amount} in {message.account}."
            raise ValueError(problem)
        return Balance(amount=state.amount - message.amount)


app = App(Account)


def envelope(message_id: str, type_: str, amount: int) -> Envelope:
    return Envelope(message_id, type_, json.dumps({"account": ACCOUNT, "amount": amount}))


WITHDRAWAL = envelope("withdrawal", "Withdrawn", 10)
DEPOSIT = envelope("deposit", "Deposited", 30)
LATER = envelope("later", "Withdrawn", 25)
TOO_MUCH = envelope("too much", "Withdrawn", 25)
MESSAGES = (WITHDRAWAL, DEPOSIT, LATER, TOO_MUCH, WITHDRAWAL)
EXPECTED = ["handler_error", "processed", "processed", "handler_error", "handler_error"]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_another_message_with_its_id_is_handled(algorithm: AlgorithmName):
    world = World(algorithm, app)
    world.deliver(WITHDRAWAL)

    handled = world.deliver(envelope("withdrawal", "Deposited", 5), WITHDRAWAL)

    other = "duplicate" if algorithm == "tokens" else "id_reused"  # its token is gone
    assert ends(handled) == ["processed", other]
    assert world.state("Account", ACCOUNT) == {"amount": 5}


@pytest.mark.parametrize("body", ['{"account": 1.5}', "[]", '{"account": ""}'])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_delivery_that_names_no_stream_costs_those_beside_it_nothing(
    table, algorithm: AlgorithmName, body: str
):
    first, *others = sent(algorithm, table)
    nameless = first._replace(message_id="nameless", body=body)

    outcomes = process(algorithm, table, [nameless, first, *others])

    assert (len(outcomes), outcomes[0].business_id) == (len(MESSAGES) + 1, None)
    assert ends(outcomes[1:]) == EXPECTED


@pytest.mark.parametrize("disturbance", [crash, lose_answer])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_all_attempts_agree_wherever_one_died(table, algorithm: AlgorithmName, disturbance):
    undisturbed = process(algorithm, table, sent(algorithm, table))
    assert ends(undisturbed) == EXPECTED
    for number, together in product(calls(algorithm), (1, 2, len(MESSAGES))):
        store = memory_table()
        messages = sent(algorithm, store)
        with_crash(algorithm, store, messages, At(number, disturbance), together)

        outcomes = process(algorithm, store, messages)

        assert outcomes_without_outputs(outcomes) == outcomes_without_outputs(undisturbed)


def sent(algorithm: AlgorithmName, table: Table) -> list[Envelope]:
    """Return the messages as they are sent: with tokens, if the algorithm needs them."""
    if algorithm != "tokens":
        return list(MESSAGES)
    tokens = TokenStore(table)
    issued = {each.message_id: drive(issue(tokens, each, ["Account"])) for each in MESSAGES[:-1]}
    return [issued[each.message_id] for each in MESSAGES]


def process(algorithm: AlgorithmName, table: Table, messages: Sequence[Envelope]) -> list[Outcome]:
    batch = BatchContext("batch-1")
    return Worker(table, app, batch=batch, business_id=ACCOUNT, algorithm=algorithm).process(*messages)


def with_crash(
    algorithm: AlgorithmName, store: Table, messages: Sequence[Envelope], disturbed: At, together: int
) -> None:
    """Process the messages in groups of so many, until the disturbance stops it."""
    watched = disturbed_once(store, disturbed)
    for first in range(0, len(messages), together):
        try:
            process(algorithm, watched, messages[first : first + together])
        except CrashError:
            return


def calls(algorithm: AlgorithmName) -> Sequence[int]:
    """Return the numbers of the moments before and after each call of a batch of one message at a time."""
    counted, table = At(0, crash), memory_table()
    with_crash(algorithm, table, sent(algorithm, table), counted, 1)
    return range(1, counted.count + 1)


def outcomes_without_outputs(outcomes: list[Outcome]) -> list[tuple[object, ...]]:
    return [
        (each.envelope.message_id, each.status, each.reason, each.error, each.version) for each in outcomes
    ]
