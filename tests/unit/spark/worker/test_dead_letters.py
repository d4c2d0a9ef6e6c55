"""A dead letter is the delivery as it was, whatever was delivered."""

import itertools
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgpack
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from eventstore import connect, drive
from handlers import App, Context, Handler, Message, State, handles
from runtime.algorithms.state_based.truncation import DAY, TruncationChoices, truncate_stream
from runtime.batch_options import BatchOptions
from runtime.clock import EARLIEST, to_microseconds
from runtime.ledger.batch import BatchContext, OpenBatches
from runtime.messages.envelope import Envelope, canonical
from runtime.retries import RetryPolicy
from runtime.spark.worker.job import FoldJob, groups
from tests.support.routed import routed

NOW = 1_767_225_600_123_456
LATER = NOW + 10**12
ACCOUNT = "a-1"
PAID = {"account": ACCOUNT, "amount": 7}

code = {"factor": 1}
"""What the handler's code is at the moment: it fails with 0, and with 2 it gives another state."""


class Paid(Message):
    account: str
    amount: int


class Balance(State):
    amount: int = 0
    note: str = ""


class Account(Handler[Balance]):
    @handles(by="account")
    def paid(self, state: Balance, message: Paid, context: Context) -> Balance:
        if message.amount * code["factor"] <= 0:
            raise ValueError("It takes deposits only.")
        note = "x" * message.amount if message.amount > 10**5 else ""
        return Balance(amount=state.amount + message.amount * code["factor"], note=note)


class Audit(Handler[Balance]):
    @handles(by="account")
    def paid(self, state: Balance, message: Paid, context: Context) -> Balance:
        return Balance(amount=state.amount + 1)


app = App(Account, Audit)
_numbers = itertools.count()


@dataclass(frozen=True)
class Log:
    """Rows whose bodies are JSON text or msgpack, and a table into which workers fold them."""

    packed: bool
    store: str
    table: str = field(default_factory=lambda: f"table{next(_numbers)}")

    def row(self, body: Mapping[str, Any], **fields: Any) -> dict[str, Any]:
        encoded = msgpack.packb(body) if self.packed else json.dumps(body)
        return {name: value for name, value in fields.items() if value is not None} | {"body": encoded}

    def routed(self, *rows: Mapping[str, Any]) -> list[pa.RecordBatch]:
        return routed(app, rows, pa.binary() if self.packed else pa.string())

    def fold(self, *rows: Mapping[str, Any], now: int = NOW, **options: Any) -> list[dict[str, Any]]:
        job = FoldJob(app, self.store, self.table, BatchContext(**options), BatchOptions(clock=lambda: now))
        return [row for outcomes in job.fold(self.routed(*rows)) for row in outcomes.to_pylist()]

    def read(self, line: str) -> dict[str, Any]:
        """Return the row that a line of JSON says."""
        row: dict[str, Any] = json.loads(line)
        if self.packed:
            row["body"] = bytes.fromhex(row["body"])
        if "enqueued_at" in row:
            row["enqueued_at"] = to_microseconds(datetime.fromisoformat(row["enqueued_at"]))
        return row


def _nothing(log: Log, sent: Mapping[str, Any]) -> None: ...


@dataclass(frozen=True)
class Cause:
    """Why a message is not handled: what is wrong with it, or what came before it, and how it is run again."""

    reason: str
    sent: Mapping[str, Any] = field(default_factory=dict)
    before: Callable[[Log, Mapping[str, Any]], None] = _nothing
    again: Mapping[str, Any] = field(default_factory=dict)
    status: str = "processed"
    handler: str | None = "Account"


def _handle_another_body(log: Log, sent: Mapping[str, Any]) -> None:
    log.fold({**sent, **log.row(PAID)})


def _handle_with_other_code(factor: int) -> Callable[[Log, Mapping[str, Any]], None]:
    def handle(log: Log, sent: Mapping[str, Any]) -> None:
        log.fold(sent)
        code["factor"] = factor

    return handle


def _handle_and_cut(log: Log, sent: Mapping[str, Any]) -> None:
    fields = {"type": "Paid", "business_id": ACCOUNT, "handler": "Account", "enqueued_at": LATER}
    for name in ("cut", "kept"):
        log.fold(log.row(PAID, message_id=name, **fields), now=LATER)

    async def cut() -> None:
        rules = TruncationChoices(older_than=DAY).as_of(LATER + 2 * DAY, OpenBatches())
        async with connect(log.store) as store:
            await truncate_stream(await store.table(log.table), f"Account-{ACCOUNT}", rules, RetryPolicy())

    drive(cut())


CAUSES = [
    Cause("unknown_type", {"type": "Payed"}, handler=None),
    Cause("unknown_type", {"type": "Payed", "handler": "Account"}),
    Cause("unknown_handler", {"handler": "Acount"}, handler="Acount"),
    Cause("invalid_body", {"body": {"account": ACCOUNT, "amount": "much"}}),
    Cause("no_business_id", {"body": {"amount": 7}}),
    Cause("business_id_mismatch", {"body": {"account": "a-2", "amount": 7}, "business_id": ACCOUNT}),
    Cause("key_too_long", {"body": {"account": "a" * 600, "amount": 7}}),
    Cause("handler_error", {"body": {"account": ACCOUNT, "amount": -7}}),
    Cause("state_too_large", {"body": {"account": ACCOUNT, "amount": 10**6}}),
    Cause("id_reused", {"body": {"account": ACCOUNT, "amount": 8}}, _handle_another_body, status="duplicate"),
    Cause("nondeterministic", before=_handle_with_other_code(2), status="duplicate"),
    Cause("replay_failed", before=_handle_with_other_code(0), status="duplicate"),
    Cause("enqueued_in_future", {"enqueued_at": LATER}, again={"now": LATER, "is_redrive": True}),
    Cause("too_late", before=_handle_and_cut, again={"late": "process"}),
]

texts = st.text(st.characters(codec="utf-8"), max_size=10)
deliveries = st.fixed_dictionaries(
    {
        "message_id": st.uuids().map(str) | texts.filter(lambda text: text and canonical(text) == text),
        "sequence": st.none() | st.integers(-(2**63), 2**63 - 1),
        "enqueued_at": st.integers(EARLIEST, NOW),
        "headers": st.none() | st.dictionaries(texts, texts, min_size=1, max_size=2),
    }
)
ODD = {"message_id": "m\n", "sequence": 2**63 - 1, "enqueued_at": EARLIEST + 1, "headers": {"": "\x00\u2028"}}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return f"sqlite:///{tmp_path_factory.mktemp('dead-letters')}/store.db"


@pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: cause.reason)
@settings(max_examples=10)
@given(packed=st.booleans(), delivered=deliveries, names_account=st.booleans())
@example(packed=False, delivered=ODD, names_account=True)
@example(packed=True, delivered=ODD, names_account=True)
def test_it_is_the_message_that_was_sent(store, packed, cause, delivered, names_account):
    # Given a message that is not handled
    log = Log(packed, store)
    wrong = {"type": "Paid", "body": PAID, **delivered, **cause.sent}
    if packed or names_account:
        wrong = {"business_id": wrong["body"].get("account"), **wrong}
    sent = log.row(**wrong)
    cause.before(log, sent)

    outcomes = log.fold(sent)

    # Then its dead letter is what was sent, and says whose it is
    code["factor"] = 1
    (letter,) = [each for each in outcomes if each["delivery"] and each["handler"] != "Audit"]
    assert (letter["reason"] or letter["status"], letter["handler"]) == (cause.reason, cause.handler)
    found = log.read(letter["delivery"])
    assert found == sent | ({"handler": cause.handler} if cause.handler else {})

    # When the cause is mended, in what it says or in the code, and it is run again
    business_id = ACCOUNT if packed or names_account else None
    mended = found | log.row(PAID, type="Paid", business_id=business_id)
    if cause.reason == "unknown_handler":
        mended["handler"] = "Account"
    again = log.fold(mended, **cause.again)

    # Then it is that message, for this handler and no other
    takers = ["Account"] if cause.handler else ["Account", "Audit"]
    assert [(each["handler"], each["status"]) for each in again] == [(name, cause.status) for name in takers]
    (envelope,) = next(groups(log.routed(mended))).envelopes
    assert envelope == Envelope(
        sent["message_id"],
        "Paid",
        mended["body"],
        mended.get("business_id"),
        sent.get("sequence"),
        sent["enqueued_at"],
        sent.get("headers"),
    )


def test_what_was_held_back_is_the_message_that_was_sent(store):
    log = Log(packed=True, store=store)
    fields = {"type": "Paid", "business_id": ACCOUNT, "enqueued_at": NOW, "headers": {"trace": "t"}}
    failing = log.row(PAID | {"amount": -1}, message_id="m-1", **fields)
    waiting = log.row(PAID, message_id="m-2", **fields)

    outcomes = log.fold(failing, waiting, batch_id="first", on_error="stop-stream")

    found = [log.read(each["delivery"]) for each in outcomes if each["reason"] == "held_back"]
    assert found == [waiting | {"handler": "Account"}]
    assert [(each["handler"], each["status"]) for each in log.fold(*found, is_redrive=True)] == [
        ("Account", "processed")
    ]


@pytest.mark.parametrize("packed", [False, True], ids=["text", "msgpack"])
def test_a_row_that_is_no_message_keeps_its_line_beside_bodies_of_any_kind(store, packed):
    log = Log(packed, store)
    good = log.row(PAID, message_id="m-1", type="Paid", business_id=ACCOUNT)
    line = '{"message_id": "m-2", "type": "Paid"}'
    bad = {"message_id": "m-2", "type": "Paid", "body": None, "problem": "body is missing", "line": line}

    outcomes = log.fold(good, bad)

    found = {(each["message_id"], each["reason"], each["delivery"]) for each in outcomes}
    assert found == {("m-1", None, None), ("m-2", "invalid_envelope", line)}
