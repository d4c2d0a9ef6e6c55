"""A refusal lasts: whatever crashes and whatever is redelivered, a message that was refused stays refused.

A withdrawal that is refused for lack of money, and a deposit after it, in one batch or one by one: the attempts agree.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

import pytest

from eventstore import InterceptedTable, Table, drive
from handlers import App, Context, Handler, Message, State, handles
from runtime import Envelope
from runtime.algorithms.choice import AlgorithmName, Dependencies, make_batch_algorithms
from runtime.algorithms.outbox.stores import TokenStore, issue
from runtime.ledger.batch import BatchContext
from runtime.messages.outcome import Outcome
from runtime.messages.parsing import prepare
from tests.unit.runtime.algorithms.world import ALGORITHMS, At, CrashError, World, crash, lose_answer
from tests.unit.runtime.patience import PATIENCE
from tests.unit.runtime.tables import memory_table
from tests.unit.runtime.worker import ToldClock, ends

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
class TestSingleMessages:
    def test_a_redelivery_gets_the_refusal_whatever_the_state_is_by_then(self, algorithm: AlgorithmName):
        world = World(algorithm, app)

        outcomes = world.deliver(WITHDRAWAL, DEPOSIT, WITHDRAWAL)

        assert ends(outcomes) == ["handler_error", "processed", "handler_error"]
        assert outcomes[2] == outcomes[0]
        assert world.state("Account", ACCOUNT) == {"amount": 30}

    def test_a_redrive_handles_it_and_after_that_it_is_known(self, algorithm: AlgorithmName):
        world = World(algorithm, app)
        world.deliver(WITHDRAWAL, DEPOSIT)

        assert ends(world.redrive(WITHDRAWAL)) == ["processed"]
        assert ends(world.deliver(WITHDRAWAL)) == ["duplicate"]
        assert ends(world.redrive(WITHDRAWAL)) == ["duplicate"]
        assert world.state("Account", ACCOUNT) == {"amount": 20}

    def test_a_redrive_that_is_refused_again_leaves_a_letter(self, algorithm: AlgorithmName):
        world = World(algorithm, app)
        world.deliver(WITHDRAWAL)

        (again,) = world.redrive(WITHDRAWAL)
        world.deliver(DEPOSIT)

        assert ends([again]) == ["handler_error"]
        assert ends(world.deliver(WITHDRAWAL)) == ["handler_error"]
        assert ends(world.redrive(WITHDRAWAL)) == ["processed"]

    def test_another_message_with_its_id_is_handled(self, algorithm: AlgorithmName):
        world = World(algorithm, app)
        world.deliver(WITHDRAWAL)

        mended = envelope("withdrawal", "Deposited", 5)

        assert ends(world.deliver(mended)) == ["processed"]
        assert ends(world.deliver(WITHDRAWAL)) in (
            ["id_reused"],
            ["duplicate"],
        )  # with tokens its token is gone
        assert world.state("Account", ACCOUNT) == {"amount": 5}


@pytest.mark.parametrize("disturbance", [crash, lose_answer])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
class TestBatches:
    def test_all_attempts_agree_wherever_one_died(self, algorithm: AlgorithmName, disturbance):
        table = memory_table()
        undisturbed = process(algorithm, table, sent(algorithm, table))
        assert ends(undisturbed) == EXPECTED
        for number in calls(algorithm):
            for together in (1, 2, len(MESSAGES)):
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
    made = make_batch_algorithms(
        algorithm,
        Dependencies(
            app,
            table,
            deduplication_store=table if algorithm == "deduplication-store" else None,
            clock=ToldClock(),
            retries=PATIENCE,
            batch=BatchContext("batch-1"),
        ),
    )
    handler = app.handlers["Account"]
    deliveries = [prepare(handler, ACCOUNT, each) for each in messages]
    return list(drive(made["Account"].process(ACCOUNT, deliveries)))


def with_crash(
    algorithm: AlgorithmName, store: Table, messages: Sequence[Envelope], disturbed: At, together: int
) -> None:
    """Process the messages in groups of so many, until the disturbance stops it."""

    def disturb(*_: object) -> None:
        disturbed("call")

    watched = InterceptedTable(store, before=disturb, after=disturb)
    for first in range(0, len(messages), together):
        try:
            process(algorithm, watched, messages[first : first + together])
        except CrashError:
            return


def calls(algorithm: AlgorithmName) -> Iterator[int]:
    """Give the numbers of the moments before and after each call of a batch of one message at a time."""
    counted = At(0, crash)
    table = memory_table()
    with_crash(algorithm, table, sent(algorithm, table), counted, 1)
    return iter(range(1, counted.count + 1))


def outcomes_without_outputs(outcomes: list[Outcome]) -> list[tuple[object, ...]]:
    return [
        (each.envelope.message_id, each.status, each.reason, each.error, each.version) for each in outcomes
    ]
