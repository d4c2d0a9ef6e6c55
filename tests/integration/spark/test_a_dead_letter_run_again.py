"""A dead letter of any kind of log, mended and run again, is the message that was sent, for its handler alone."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgpack
import pytest
from pyspark.sql import functions as sf

from handlers import App, Context, Handler, Message, State, handles
from tests.support.logs import write_lines


class Paid(Message):
    account: str
    amount: int


class Closed(Message):
    account: str


class Balance(State):
    amount: int = 0


class Account(Handler[Balance]):
    @handles(by="account")
    def paid(self, state: Balance, message: Paid, context: Context) -> Balance:
        if message.amount < 0:
            raise ValueError("It takes deposits only.")
        return Balance(amount=state.amount + message.amount)


class Audit(Handler[Balance]):
    @handles(by="account")
    def paid(self, state: Balance, message: Paid, context: Context) -> Balance:
        return Balance(amount=state.amount + 1)


class MendedAccount(Handler[Balance], name="Account"):
    @handles(by="account")
    def paid(self, state: Balance, message: Paid, context: Context) -> Balance:
        return Balance(amount=state.amount + message.amount)


class Archive(Handler[Balance]):
    @handles(by="account")
    def paid(self, state: Balance, message: Paid, context: Context) -> Balance:
        return Balance(amount=state.amount + 1)

    @handles(by="account")
    def closed(self, state: Balance, message: Closed, context: Context) -> Balance:
        return Balance(amount=0)


app, mended_app = App(Account, Audit), App(MendedAccount, Audit, Archive)

PAID = {"account": "a-1", "amount": 7}
LONG = "a" * 600
MOMENT = datetime(2026, 1, 31, 12, 0, 0, 123456, tzinfo=UTC)


class Case(NamedTuple):
    """What is wrong with a message, the reasons of its dead letters by handler, how it is mended, and who takes it."""

    sent: Mapping[str, Any]
    reasons: Mapping[str | None, str]
    mended: Mapping[str, Any]
    takers: Iterable[str]


BOTH = ("Account", "Audit")
CASES = {
    "m-1": Case({}, {}, {}, ()),
    "m-2": Case({"body": PAID | {"amount": -7}}, {"Account": "handler_error"}, {"body": PAID}, ["Account"]),
    "m-3": Case({"type": "Closed"}, {None: "unknown_type"}, {}, ["Archive"]),
    "m-4": Case({"handler": "Archive"}, {"Archive": "unknown_handler"}, {}, ["Archive"]),
    "m-5": Case(
        {"type": "Closed", "handler": "Audit"}, {"Audit": "unknown_type"}, {"type": "Paid"}, ["Audit"]
    ),
    "m-6": Case(
        {"body": PAID | {"amount": "much"}}, dict.fromkeys(BOTH, "invalid_body"), {"body": PAID}, BOTH
    ),
    "m-7": Case({"body": {"amount": 7}}, dict.fromkeys(BOTH, "no_business_id"), {"body": PAID}, BOTH),
    "m-8": Case(
        {"body": PAID, "business_id": "a-2"},
        dict.fromkeys(BOTH, "business_id_mismatch"),
        {"body": PAID | {"account": "a-2"}},
        BOTH,
    ),
    "m-9": Case(
        {"body": PAID | {"account": LONG}, "business_id": LONG},
        dict.fromkeys(BOTH, "key_too_long"),
        {"body": PAID, "business_id": "a-1"},
        BOTH,
    ),
    "m-10": Case({"type": ""}, {None: "invalid_envelope"}, {"type": "Paid"}, (*BOTH, "Archive")),
}


class Kind(NamedTuple):
    """A kind of log: its format, and whether bodies are msgpack."""

    format: str
    packed: bool = False

    def row(self, message_id: str, fields: Mapping[str, Any]) -> dict[str, Any]:
        common: dict[str, Any] = {
            "type": "Paid",
            "body": PAID,
            "sequence": 7,
            "enqueued_at": MOMENT,
            "headers": {"trace": "é"},
        }
        given = {"business_id": "a-1"} if self.packed else {}
        row = {"message_id": message_id} | common | given | dict(fields)
        return row | {"body": self.body(row["body"])}

    def body(self, fields: Mapping[str, Any]) -> str | bytes:
        return msgpack.packb(fields) if self.packed else json.dumps(fields)

    def read(self, line: str) -> dict[str, Any]:
        """Return the row that a line of JSON says."""
        row: dict[str, Any] = json.loads(line)
        moment = datetime.fromisoformat(row["enqueued_at"])
        row["enqueued_at"] = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return row | {"body": bytes.fromhex(row["body"])} if self.packed else row

    def write(self, place, name: str, rows: list[dict[str, Any]]) -> Any:
        if self.format == "json":
            lines = [row | {"enqueued_at": row["enqueued_at"].isoformat()} for row in rows]
            return write_lines(place.folder / f"{name}.jsonl", lines)
        body = "binary" if self.packed else "string"
        frame = place.spark.createDataFrame(
            [row | {"body": bytearray(row["body"])} if self.packed else row for row in rows],
            f"message_id string, type string, body {body}, business_id string, sequence long, "
            "enqueued_at timestamp, headers map<string,string>, handler string",
        )
        if self.format == "frame":
            # ... with times that name no zone
            return frame.withColumn("enqueued_at", sf.to_timestamp_ntz(sf.lit(f"{MOMENT:%F %T.%f}")))
        frame.write.parquet(f"{place.folder}/{name}.parquet")
        return f"{place.folder}/{name}.parquet"


@pytest.mark.thorough
@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(Kind("json"), id="json"),
        pytest.param(Kind("parquet"), id="parquet", marks=pytest.mark.thorough),
        pytest.param(Kind("parquet", packed=True), id="parquet-msgpack", marks=pytest.mark.thorough),
        pytest.param(Kind("frame"), id="frame", marks=pytest.mark.thorough),
    ],
)
def test_it_is_the_message_that_was_sent(place, kind):
    # Given a log of messages that are not handled
    sent = [kind.row(message_id, case.sent) for message_id, case in CASES.items()]
    outcomes = place.run(kind.write(place, "first", sent), app=app).where("delivery is not null").collect()

    # Then each dead letter is what was sent, and says whose it is
    found = [(row.handler, row.reason, kind.read(row.delivery)) for row in outcomes]
    expected = [
        (handler, reason, row | ({"handler": handler} if handler else {}))
        for row in sent
        for handler, reason in CASES[row["message_id"]].reasons.items()
    ]
    assert sorted(found, key=_place) == sorted(expected, key=_place)

    # When the messages and the code are mended, and the dead letters are run again
    mended = []
    for _, _, row in found:
        fields = dict(CASES[row["message_id"]].mended)
        mended.append(row | fields | ({"body": kind.body(fields["body"])} if "body" in fields else {}))
    again = place.run(kind.write(place, "again", mended), app=mended_app)

    # Then each handler takes its own, and nothing else
    taken = [(row.message_id, row.handler, row.status) for row in again.collect()]
    assert sorted(taken) == sorted(
        (message_id, taker, "processed") for message_id, case in CASES.items() for taker in case.takers
    )


def _place(letter: tuple[str | None, str, Mapping[str, Any]]) -> tuple[str, str]:
    return letter[2]["message_id"], letter[0] or ""
