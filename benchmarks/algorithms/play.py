"""Games that are processed with one algorithm on a table in memory that counts, and what each message of them costs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from types import MappingProxyType
from typing import Any, NamedTuple

from benchmarks.contender import DisagreementError
from benchmarks.games import by_turn, game_id, message
from benchmarks.shooting import NOW
from eventstore import InterceptedTable, Page, Row, connect, drive
from eventstore.keys import escape
from eventstore.limits import prepare_row
from handlers import App, Context, Handler, Message, State
from handlers.app import Method, Route
from runtime import Envelope, Output, Processor, Status
from runtime.algorithms.choice import AlgorithmName
from runtime.clock import Clock


class CountedApp(App):
    """Handlers that behave as ever, and how often they ran."""

    def __init__(self, *handlers: type[Handler[Any]]) -> None:
        super().__init__(*handlers)
        self.runs = 0
        for definition in self.handlers.values():
            definition.routes = self._counted_routes(definition.routes)

    def _counted_routes(self, routes: Mapping[str, Route]) -> Mapping[str, Route]:
        return MappingProxyType({name: self._counted_route(route) for name, route in routes.items()})

    def _counted_route(self, route: Route) -> Route:
        return replace(
            route,
            revisions={revision: self._counted(method) for revision, method in route.revisions.items()},
        )

    def _counted(self, method: Method) -> Method:
        def counted(state: State, message: Message, context: Context) -> State:
            self.runs += 1
            return method(state, message, context)

        return counted


_FIRST, _LAST = "", "~~"
_KEY_CHARACTER_BYTES = 2


class MeteredTable(InterceptedTable):
    """An empty table that is metered from now on."""

    def __init__(self) -> None:
        super().__init__(drive(connect("memory:").table("metered")), after=self._note)
        self.rows_read = 0
        self._bytes: dict[str, int] = {}
        self._changed: set[str] = set()

    @property
    def requests(self) -> int:
        """The number of requests to a table service so far: a barrier is none."""
        return self.calls - self.counts["barrier"]

    @property
    def stored_bytes(self) -> int:
        """The bytes of all rows, as Azure Table Storage counts them for its prices."""
        while self._changed:
            partition_key = self._changed.pop()
            self._bytes[partition_key] = sum(map(row_bytes, self._stored_rows(partition_key)))
        return sum(self._bytes.values())

    def _stored_rows(self, partition_key: str) -> Iterator[Row]:
        continuation: str | None = None
        while True:
            page = drive(self._table.query(partition_key, _FIRST, _LAST, continuation=continuation))
            yield from page.rows
            continuation = page.continuation
            if continuation is None:
                return

    def _note(self, call: str, partition_key: str, _number: int, result: object) -> None:
        if call == "transact":
            self._changed.add(partition_key)
        if isinstance(result, Row):
            self.rows_read += 1
        elif isinstance(result, Page):
            self.rows_read += len(result.rows)


def row_bytes(row: Row) -> int:
    """Return the size of one row: its keys as they are stored, and its properties with their names."""
    keys = escape(row.partition_key) + escape(row.row_key)
    return prepare_row(row.properties)[1] + _KEY_CHARACTER_BYTES * len(keys)


class Spent(NamedTuple):
    """What was spent: requests, rows that they read, runs of handlers, and bytes by which the table has grown."""

    requests: float
    rows_read: float
    runs: float
    stored_bytes: float

    @classmethod
    def until_now(cls, table: MeteredTable, app: CountedApp) -> Spent:
        """Read the meters."""
        return cls(table.requests, table.rows_read, app.runs, table.stored_bytes)

    def each(self, since: Spent, messages: int) -> Spent:
        """Return what was spent since an earlier reading for each of some messages."""
        return Spent(*((now - then) / messages for now, then in zip(self, since, strict=True)))


GAMES = 2
ONE_GAME = range(1)
_BETWEEN = 10_007


class Play:
    """Some handlers of the sample, one algorithm, and a table for its states, ids and tokens."""

    def __init__(self, algorithm: AlgorithmName, *handlers: type[Handler[Any]]) -> None:
        self.table = MeteredTable()
        self.app = CountedApp(*handlers)
        self._processor = Processor(self.app, self.table, publish, clock=ticking_clock(), algorithm=algorithm)

    def issue(self, messages: Sequence[Envelope]) -> tuple[Spent, list[Envelope]]:
        """Give messages from outside their tokens. Return what each of them cost, and the messages as they are sent."""
        before = Spent.until_now(self.table, self.app)
        sent = [drive(self._processor.issue(each)) for each in messages]
        return Spent.until_now(self.table, self.app).each(before, len(sent)), sent

    def process(self, sent: Sequence[Envelope], status: Status = Status.PROCESSED) -> Spent:
        """Process messages and return what each of them cost. Raises `DisagreementError` when one ends otherwise."""
        before = Spent.until_now(self.table, self.app)
        for each in sent:
            check_ends([outcome.status for outcome in drive(self._processor.process(each))], status)
        return Spent.until_now(self.table, self.app).each(before, len(sent))


def shots(numbers: range, games: range = range(GAMES)) -> list[Envelope]:
    """Return shots of these numbers in each game, each of which has one output."""
    return _messages("FireAt", numbers, games)


def starts(numbers: range, games: range = range(GAMES)) -> list[Envelope]:
    """Return starts of rounds in each game, which have no outputs. They share their numbers with the shots."""
    return _messages("StartNewRound", numbers, games)


async def publish(_output: Output) -> None:
    """Let nobody take what is published: it waits."""


def ticking_clock() -> Clock:
    """Return a clock that goes on a little whenever somebody looks at it."""
    return count(NOW, _BETWEEN).__next__


def check_ends(ends: Sequence[str], end: str) -> None:
    """Raise `DisagreementError` unless there is an end, and all of them are this one."""
    if set(ends) != {end}:
        shown = ", ".join(sorted(set(ends))) or "nothing"
        message = f"A message ended as {shown}, but should be {end}: the measurement stands for nothing."
        raise DisagreementError(message)


def _messages(type_: str, numbers: range, games: range) -> list[Envelope]:
    return [
        Envelope(message_id, type_, body, game_id(game), turn, NOW + turn * _BETWEEN)
        for game, turn in by_turn(games, numbers)
        for message_id, _, body in [message(game, turn)]
    ]
