"""A verification replays a log against what is stored with other handlers, tells what differs, and writes nothing."""

import asyncio
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from eventstore import Operation, Row, Table, TableNotFoundError, connect, drive
from eventstore.port import InterceptedTable
from handlers import App, Context, Handler, Message, State, handles
from runtime.errors import LogError, UsageError
from runtime.spark import Verification, verify
from tests.support.logs import row, write_lines

pytestmark = pytest.mark.connect


class Paid(Message):
    account: str
    amount: int


class Booked(Message):
    account: str
    total: int


class Total(State):
    total: int = 0


class Count(State):
    count: int = 0


class Account(Handler[Total]):
    @handles(by="account")
    def paid(self, state: Total, message: Paid, context: Context) -> Total:
        total = state.total + message.amount
        context.publish(Booked(account=message.account, total=total))
        return Total(total=total)


class Charged(Handler[Total], name="Account"):
    """As `Account`, with a fee on what is large: a rule that was changed without a new revision."""

    @handles(by="account")
    def paid(self, state: Total, message: Paid, context: Context) -> Total:
        total = state.total + message.amount - (message.amount >= 50)
        context.publish(Booked(account=message.account, total=total))
        return Total(total=total)


class Letters(Handler[Count]):
    @handles(by="account")
    def booked(self, state: Count, message: Booked, context: Context) -> Count:
        return Count(count=state.count + 1)


class PaidBy(Message, name="Paid"):
    owner: str
    payer: str = ""
    amount: int


class Purse(Account):
    """As `Account`, under another name."""


class Post(Letters):
    """As `Letters`, under another name."""


class OfOwner(Handler[Total], name="Account"):
    @handles(by="owner")
    def paid(self, state: Total, message: PaidBy, context: Context) -> Total:
        return state


class OfPayer(Handler[Total], name="Account"):
    """Its business id is in no message of the log."""

    @handles(by="payer")
    def paid(self, state: Total, message: PaidBy, context: Context) -> Total:
        return state


class OfBookings(Handler[Total], name="Account"):
    """It no longer takes what its streams were made of."""

    @handles(by="account")
    def booked(self, state: Total, message: Booked, context: Context) -> Total:
        return state


BEFORE, CHARGED = App(Account, Letters), App(Charged, Letters)


def paid(number: int, account: str, amount: int):
    return row(number, "Paid", {"account": account, "amount": amount, "owner": f"o{amount}"})


class ReadOnlyTable(InterceptedTable):
    """A table whose writes are errors, also in a worker."""

    async def transact(self, partition_key: str, operations: Sequence[Operation]) -> tuple[str, ...]:
        raise AssertionError("a verification has written")

    async def barrier(self) -> None:
        raise AssertionError("a verification has asked for a durable commit")


def read_only(table: Table) -> Table:
    return ReadOnlyTable(table)


def stored(url: str, table: str) -> list[tuple]:
    """Return all rows of a table with their ETags: of streams, and of the ledger."""

    async def read():
        async with connect(url) as store:
            opened = await store.table(table, make=False)
            found: list[Row] = []
            streams = {each.partition_key for each in (await opened.scan("SS-HEAD")).rows}
            for key in [*sorted(streams), "_batches"]:
                found += (await opened.query(key, "", "\uffff")).rows
            return [(each.partition_key, each.row_key, each.etag, dict(each.properties)) for each in found]

    return drive(read()) if url.startswith("sqlite") else asyncio.run(read())


def found_by(place, log, app: App, **options) -> Verification:
    """Verify a log, and make sure that nothing was written: no row, no table, no file."""
    before, files = stored(place.store, place.table), sorted(place.folder.rglob("*"))
    found = verify(place.spark, log, app, store=place.store, table=place.table, wrap=read_only, **options)
    assert stored(place.store, place.table) == before
    assert sorted(place.folder.rglob("*")) == files
    assert sum(each.deliveries for each in found.counts) == found.deliveries
    return found


def counts_of(found: Verification) -> list[tuple]:
    names = ("handler", "type", "revision", "verdict", "deliveries", "streams")
    return [tuple(getattr(each, name) for name in names) for each in found.counts]


HANDLED = [paid(1, "a", 10), paid(2, "a", 60), paid(3, "b", 5), paid(4, "a", 70), paid(2, "a", 60)]


def handle(place) -> str:
    """Run a batch: two accounts with small and large amounts, and a copy. Return its log."""
    place.app = BEFORE
    path = write_lines(place.folder / "log.jsonl", HANDLED)
    place.run(path, cascade=True)
    return path


@pytest.fixture(scope="module")
def log(lasting_place) -> str:
    """Give the log of a batch that was run in the lasting place, and to which nothing is added."""
    return handle(lasting_place)


@pytest.mark.thorough
def test_a_changed_rule_is_found_with_the_first_version_of_each_stream(lasting_place, log):
    found = found_by(lasting_place, log, CHARGED)

    assert not found.is_clean
    assert counts_of(found) == [
        ("Account", "Paid", 1, "match", 2, 2),
        ("Account", "Paid", 1, "nondeterministic", 3, 1),
    ]
    (difference,) = found.first_differences()
    assert (difference.business_id, difference.version, difference.deliveries) == ("a", 2, 3)
    assert difference.changes == [{"field": "total", "before": 70, "after": 69}]
    assert "other outputs and another next state than recorded: total was 70 and is 69" in difference.error


ACCOUNTS, LETTERS = {("Account", "a"), ("Account", "b")}, {("Letters", "a"), ("Letters", "b")}


@pytest.mark.parametrize(
    ("handlers", "rows", "lost"),
    [
        ((OfOwner, Letters), None, ACCOUNTS),
        *(
            pytest.param(*case, marks=pytest.mark.thorough)
            for case in [
                ((OfOwner, Letters), [paid(3, "b", 5), paid(9, "b", 5)], {("Account", "b")}),
                ((OfPayer, Letters), None, ACCOUNTS),
                ((OfBookings, Letters), None, ACCOUNTS),
                ((Purse, Letters), None, ACCOUNTS),
                ((Account, Post), None, LETTERS),
                ((Purse, Post), [paid(9, "b", 5)], ACCOUNTS | LETTERS),
                ((Account, Letters, Purse), None, set()),
                ((Account, Letters), [paid(9, "a", 10), {**paid(1, "a", 10), "handler": "Account"}], set()),
            ]
        ),
    ],
)
def test_streams_that_todays_app_does_not_look_for_are_differences(lasting_place, log, handlers, rows, lost):
    # A log that is a table takes Spark less to plan than one of lines.
    schema = "message_id string, type string, body string, sequence long, handler string"
    given = lasting_place.spark.createDataFrame(rows or HANDLED, schema)

    found = found_by(lasting_place, given, App(*handlers, name="bank"))

    assert found.is_clean == (not lost)
    differences = {(each.handler, each.business_id, each.verdict.value) for each in found.first_differences()}
    assert differences == {(*stream, "stream_lost") for stream in lost}
    assert sum(each.streams for each in found.counts if each.verdict.is_difference) == len(lost)
    assert found.deliveries == len(rows or range(5)) * (1 + (Purse in handlers and Account in handlers))


@pytest.mark.thorough
def test_messages_that_are_dead_letters_are_counted_by_error(lasting_place, log):
    bad = [{"account": "new", "amount": "much"}, {"account": "newer", "amount": "many"}, {"account": "new"}]
    rows = [*(row(number, "Paid", body) for number, body in enumerate(bad, 20)), paid(23, "new", 1)]

    found = found_by(lasting_place, write_lines(lasting_place.folder / "bad.jsonl", rows), BEFORE)

    (count,) = found.counts
    assert (count.verdict, count.deliveries, count.streams) == ("unknown", 4, 2)
    assert [(reason.partition(" ")[0], number) for reason, number in count.reasons] == [
        ("amount:", 2),
        ("amount:", 1),
    ]


@pytest.mark.thorough
def test_a_sample_takes_whole_streams_the_same_ones_each_time(place):
    place.app = BEFORE
    rows = [paid(number, f"a{number % 60}", number) for number in range(1, 181)]
    log = write_lines(place.folder / "log.jsonl", rows)
    place.run(log)

    def sampled(**options) -> set[str]:
        found = found_by(place, log, App(AllWrong, Letters), **options)
        assert all(each.deliveries == 3 for each in found.first_differences())
        return {each.business_id for each in found.first_differences()}

    third = sampled(sample=0.33)

    assert 8 < len(third) < 32
    assert sampled(sample=0.33, partitions=3) == third
    assert third < sampled(sample=0.66)
    assert sampled(sample=0.33, seed=1) != third
    assert len(sampled()) == 60
    limited = found_by(place, log, App(AllWrong, Letters)).first_differences(2)
    assert [(each.business_id, each.version) for each in limited] == [("a0", 1), ("a1", 1)]


class AllWrong(Handler[Total], name="Account"):
    @handles(by="account")
    def paid(self, state: Total, message: Paid, context: Context) -> Total:
        return Total(total=-1)


def test_what_cannot_be_verified_is_refused_and_nothing_is_made(lasting_place, log):
    asyncio.run(connect("memory:verified").table("games"))
    other = lasting_place.folder / "other.db"
    here = {"store": lasting_place.store, "table": lasting_place.table}
    cases: list[tuple[str, dict[str, Any], type[Exception], str | None]] = [
        *((log, {"sample": share}, UsageError, "greater than 0 and at most 1") for share in (0, -0.1, 1.1)),
        ("nowhere.jsonl", {}, LogError, "There is no log at nowhere"),
        (log, {"sample": 0.0000001}, LogError, "larger sample"),
        (log, {"table": "nothing"}, TableNotFoundError, "There is no table nothing"),
        (log, {"store": f"sqlite:///{other}"}, TableNotFoundError, None),
        (log, {"store": "memory:verified", "table": "games"}, UsageError, "exists in one process only"),
    ]
    for path, options, error, sentence in cases:
        with pytest.raises(error, match=sentence):
            verify(lasting_place.spark, path, BEFORE, **here | options)
    assert not other.exists()


@pytest.mark.thorough
def test_the_code_that_the_documentation_shows_runs(lasting_place, log, capsys):
    page = (Path(__file__).parents[3] / "docs" / "verifying.md").read_text()
    (code,) = [block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "verify(" in block]
    for shown, here in (
        ('"log.parquet"', repr(log)),
        ("sqlite:///store.db", lasting_place.store),
        ('"games"', repr(lasting_place.table)),
        ("sample=0.1", "sample=1.0"),
    ):
        assert code.count(shown) == 1
        code = code.replace(shown, here)

    exec(code, {"app": BEFORE})
    with pytest.raises(AssertionError, match="total was 70 and is 69"):
        exec(code, {"app": CHARGED})

    assert "verdict" in capsys.readouterr().out
