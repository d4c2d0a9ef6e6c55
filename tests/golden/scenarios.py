"""The golden scenarios: logs are processed through public doors alone, and what came of them is told as JSON.

Left out is what may change on purpose: fingerprints, digests, the words of errors, rows and bytes.
"""

import asyncio
import contextlib
import io
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa

from eventstore import InterceptedTable, Table, connect
from runtime import Envelope, Outcome, Output, Processor
from runtime.cli import main
from runtime.tables import read_batches, read_letters, read_state, read_versions
from tests.golden import logs
from tests.golden.app import app

ALGORITHMS = ("state-based", "outbox", "deduplication-store", "tokens")
TABLE = "golden"
SECOND = 1_000_000
BEGIN = 1_767_225_600 * SECOND
"""2026-01-01 in microseconds."""

_CHANGING = {"fingerprint", "outputs_digest", "state_digest", "input", "out", "letter", "error", "token"}
_LONGEST = 200

Facts = Any


def plain(value: Any) -> Facts:
    """Return a value as JSON: JSON text is parsed, maps are sorted, and long text is shortened."""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {name: plain(each) for name, each in sorted(value.items()) if name not in _CHANGING}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, str) and value[:1] in ("{", "["):
        with contextlib.suppress(ValueError):
            return plain(json.loads(value))
    if isinstance(value, str) and len(value) > _LONGEST:
        return f"{value[:20]}... {len(value)} characters"
    return value


def rows(table: pa.Table) -> list[Facts]:
    """Return the rows of an Arrow table as sorted JSON. Names of epochs are random, and are left out."""
    maps = {field.name for field in table.schema if pa.types.is_map(field.type)}
    found = [
        {
            name: dict(value) if name in maps else value
            for name, value in row.items()
            if value not in (None, []) and not (name == "batch" and value.startswith("consumer-"))
        }
        for row in table.to_pylist()
    ]
    return in_order(plain(row) for row in found)


def in_order(found: Iterable[Facts]) -> list[Facts]:
    """Return facts in an order that is always the same."""
    return sorted(found, key=lambda each: json.dumps(each, sort_keys=True))


def held(store: str) -> Facts:
    """Return what the readers find in the table of a store."""
    return {
        "states": rows(read_state(store, TABLE)),
        "versions": rows(read_versions(store, TABLE)),
        "letters": rows(read_letters(store, TABLE)),
        "batches": [
            {name: value for name, value in row.items() if name not in {"started_at", "updated_at"}}
            for row in rows(read_batches(store, TABLE))
        ],
    }


def command(*arguments: str) -> Facts:
    """Run a command that prints JSON, in this process, and return that with the exit code."""
    code: object = 0
    out = io.StringIO()
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(io.StringIO()),
        patch.dict("os.environ", {"COLUMNS": "250"}),
    ):
        try:
            main([*arguments, "--json"])
        except SystemExit as end:
            code = end.code
    return {"exit": code or 0, "printed": json.loads(out.getvalue()) if out.getvalue().strip() else None}


@dataclass
class Consumer:
    """A consumer of a queue: what is published comes back into the queue, at a time of its own."""

    table: Table
    algorithm: str = "state-based"
    now: int = BEGIN
    dies_at: int | None = None
    options: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        self.published: list[Output] = []
        self.issued: dict[tuple[str, str | bytes], Envelope] = {}
        options: dict[str, Any] = {
            "clock": lambda: self.now,
            "algorithm": self.algorithm,
            **(self.options or {}),
        }
        self.processor = Processor(app, self.table, self._publish, **options)

    async def _publish(self, output: Output) -> None:
        if self.dies_at is not None:
            self.dies_at -= 1
            if self.dies_at < 0:
                raise ConnectionResetError
        self.published.append(output)

    async def take(self, message: Envelope) -> list[Facts]:
        """Process a message and everything that it publishes. Return the outcomes."""
        self.now += SECOND
        key = (message.message_id, message.body)
        if key not in self.issued:  # copies of a message have one token
            self.issued[key] = await self.processor.issue(message)
        waiting, found = [self.issued[key]], []
        while waiting:
            before = len(self.published)
            found += await self.processor.process(waiting.pop(0))
            known = [output.envelope() for output in self.published[before:]]
            waiting += [each for each in known if each.type in {"Hit", "Missed"}]
        return [outcome_facts(outcome) for outcome in found]


def outcome_facts(outcome: Outcome) -> Facts:
    """Return an outcome as JSON. The header that carries a token is random, and is left out."""
    found = {
        "message_id": outcome.envelope.message_id,
        "handler": outcome.handler,
        "business_id": outcome.business_id,
        "status": outcome.status.value,
        "reason": outcome.reason.value if outcome.reason else None,
        "version": outcome.version,
        "outputs": [{**output._asdict(), "headers": _headers(output.headers)} for output in outcome.outputs],
    }
    return plain({name: value for name, value in found.items() if value not in (None, [])})


def _headers(headers: Mapping[str, str] | None) -> dict[str, str]:
    return {name: value for name, value in (headers or {}).items() if "token" not in name.lower()}


def envelope(row: logs.Row) -> Envelope:
    fields = {name: row.get(name) for name in ("business_id", "sequence", "headers")}
    at = datetime.fromisoformat(row["enqueued_at"]) if row.get("enqueued_at") else None
    return Envelope.of(row["message_id"], row["type"], row["body"], enqueued_at=at, **fields)


def ruling(message_id: str, words: str) -> Envelope:
    return Envelope.of(message_id, "Ruled", json.dumps({"lane": logs.LANE, "words": words, "length": 0}))


def processed(algorithm: str, folder: Path) -> Facts:
    """Process the log message by message. Return outcomes, and what the table holds afterwards."""
    store = f"sqlite:///{folder}/{algorithm}.db"
    found = asyncio.run(_processed(algorithm, store))
    # Counts of objects, not of rows and bytes.
    stats = command("show", "--stats", "--store", store, "--table", TABLE)["printed"]
    handlers = [
        {name: each[name] for name in ("handler", "objects", "versions", "letters") if name in each}
        for each in stats.get("handlers", [])
    ]
    return {**found, **held(store), "stats": handlers}


async def _processed(algorithm: str, store: str) -> Facts:
    async with connect(store) as opened:
        table = await opened.table(TABLE)
        options = {"acknowledge_every": timedelta(seconds=20)} if algorithm == "state-based" else {}
        consumer = Consumer(table, algorithm, options=options)
        outcomes = [each for row in logs.lines() for each in await consumer.take(envelope(row))]
        # A worker that dies while it publishes: its outputs are the same when the message is redelivered or swept.
        dying = Consumer(table, algorithm, consumer.now, dies_at=1)
        last = ruling("golden-30", "twice")
        with contextlib.suppress(ConnectionResetError):
            await dying.take(last)
        dying.dies_at, dying.now = None, dying.now + 3600 * SECOND
        swept = 0 if algorithm == "state-based" else await dying.processor.sweep(timedelta(minutes=1))
        again = await dying.take(last)
        mended = await dying.processor.redrive(ruling("golden-3", "mended"))
        evicted = await dying.processor.evict(timedelta(minutes=30), dry_run=True)
        return {
            "outcomes": outcomes,
            "after a death": {
                "swept": swept,
                "published": [
                    plain({**each._asdict(), "headers": _headers(each.headers)}) for each in dying.published
                ],
                "outcomes": again,
            },
            "redriven": [outcome_facts(each) for each in mended],
            "evicted": evicted,
            "open epochs": await consumer.processor.flush(),
        }


def forgotten(folder: Path) -> Facts:
    """Forget objects, keep policies, and look at what commands tell."""
    store = f"sqlite:///{folder}/forgotten.db"

    async def deliver(*some: logs.Row) -> list[Facts]:
        async with connect(store) as opened:
            consumer = Consumer(await opened.table(TABLE))
            return [each for row in some for each in await consumer.take(envelope(row))]

    log = logs.lines()
    game = next(json.loads(row["body"])["game_id"] for row in log if row["type"] == "FireAt")
    of_game = [row for row in log if row["type"] in {"FireAt", "StartNewRound"} and game in row["body"]]
    of_lane = [row for row in log if row["type"] == "Ruled" and f'"{logs.LANE}"' in row["body"]]
    asyncio.run(deliver(*of_game, *of_lane))
    place = ("--store", store, "--table", TABLE)
    exits = {
        "forget": command("forget", "ShootingRange", game, "--yes", *place)["exit"],
        "forget and restart": command("forget", "Referee", logs.LANE, "--restart", "--yes", *place)["exit"],
        "set a policy": command("truncate", "--policy", "set", "--keep-last", "5", *place)["exit"],
        "hold": command("truncate", "--policy", "set", "--handler", "LeaderBoard", "--hold", *place)["exit"],
        "no such table": command("show", "--store", store, "--table", "nothing")["exit"],
        "no such policy": command("truncate", "--policy", "remove", "--handler", "Referee", *place)["exit"],
        "wrong usage": command("show", "Referee", logs.LANE, "--limit", "-1", *place)["exit"],
    }
    later = [
        {**of_lane[0], "message_id": f"golden-{n}", "enqueued_at": f"{2099 if n else 2025}-01-01T00:00:00Z"}
        for n in (0, 99)
    ]
    return {
        "exits": exits,
        "outcomes": asyncio.run(deliver(of_game[0], *later)),
        "policies": [
            _timeless(each) for each in command("truncate", "--policy", "list", *place)["printed"]["policies"]
        ],
        "states": [_timeless(row) for row in held(store)["states"]],
    }


def _timeless(row: dict[str, Facts]) -> dict[str, Facts]:
    """Return a row without what the clock of a command has written."""
    return {name: value for name, value in row.items() if name not in {"forgotten", "horizon", "set_at"}}


async def requests() -> dict[str, dict[str, int]]:
    """Count the requests of each operation, on a table in memory."""
    found: dict[str, dict[str, int]] = {}
    async with connect("memory:") as store:
        for algorithm in ALGORITHMS:
            counted = InterceptedTable(await store.table(algorithm.replace("-", "")))
            processor = Consumer(counted, algorithm).processor
            zero, one = [
                await processor.issue(Envelope.of(name, "Ruled", json.dumps({"lane": "a", "words": "w"})))
                for name in ("zero", "one")
            ]
            await processor.process(zero)
            work: dict[str, Callable[[], Awaitable[object]]] = {
                "a new message": partial(processor.process, one),
                "its duplicate": partial(processor.process, one),
                "sweep": partial(processor.sweep, timedelta(0)),
            }
            for name, step in work.items():
                counted.counts = Counter()
                await step()
                found[f"{algorithm}: {name}"] = dict(sorted(counted.counts.items()))
    return found


SCENARIOS: dict[str, Callable[[Path], Facts]] = {
    **{f"processed-{name}": partial(processed, name) for name in ALGORITHMS},
    "forgotten": forgotten,
    "requests": lambda _: asyncio.run(requests()),
}
