"""A table with batches, objects, dead letters and publications, and the outcomes of its batches, made without Spark."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

from eventstore import Table, connect, drive
from handlers import App
from runtime import Envelope
from runtime.algorithms.choice import Dependencies, make_batch_algorithms
from runtime.clock import to_datetime
from runtime.dead_letters import TableLetters
from runtime.ledger.batch import BatchContext
from runtime.ledger.ledger import BatchRecord, Ledger
from runtime.ledger.settings import TableSettings
from runtime.messages.outcome import Outcome
from runtime.messages.parsing import business_id_of, prepare, unroutable
from runtime.publishing.publisher import Record, Result
from runtime.publishing.records import Publications
from runtime.retries import RetryPolicy
from samples.shooting_range import app as shooting_range
from tests.support.clocks import FrozenClock
from tests.support.done_batches import write_round

TABLE = "games"
GAME = str(UUID(int=1, version=4))


@dataclass
class Explored:
    folder: Path
    app: App = shooting_range
    time: datetime = datetime(2026, 3, 1, 2, tzinfo=UTC)
    batches: int = 0

    def __post_init__(self) -> None:
        self.url = f"sqlite:///{self.folder}/store.db"
        self.store = connect(self.url)
        self.table: Table = drive(self.store.table(TABLE))
        self.out = str(self.folder / "outcomes")
        drive(TableSettings.claim(self.table, self.app))

    def clock(self) -> int:
        self.time += timedelta(milliseconds=7)
        return FrozenClock.at(self.time.replace(tzinfo=None).isoformat()).microseconds

    def batch(self, messages: Sequence[Envelope], rounds: int = 3, *, publish: bool = True) -> list[Outcome]:
        self.batches += 1
        return drive(self._batch(f"night-{self.batches}", messages, rounds, publish=publish))

    async def _batch(self, id_, messages, rounds, *, publish) -> list[Outcome]:
        ledger = Ledger(self.table, self.clock)
        record = await ledger.begin(id_, f"log.parquet of {id_}", self.out)
        context = BatchContext(id_, await ledger.open_batches(), number=record.number)
        algorithms = make_batch_algorithms(
            "state-based", Dependencies(self.app, self.table, clock=self.clock, batch=context)
        )
        all_outcomes: list[Outcome] = []
        for number in range(rounds):
            groups: dict[tuple[str, str | None], list[Any]] = {}
            outcomes: list[Outcome] = []
            for message in messages:
                if not self.app.routes(message.type):
                    outcomes.append(unroutable(message, None))
                for route in self.app.routes(message.type):
                    business_id = business_id_of(route, message)
                    delivery = prepare(self.app.handlers[route.handler], business_id, message)
                    if business_id is None:
                        assert isinstance(delivery, Outcome)
                        outcomes.append(delivery)
                    else:
                        groups.setdefault((route.handler, business_id), []).append(delivery)
            letters = TableLetters(self.table, context, self.clock, RetryPolicy())
            await letters.keep(outcomes)
            for (handler, of), deliveries in groups.items():
                outcomes += await algorithms[handler].process(str(of), deliveries)
            self.write(record, number, outcomes)
            self.time += timedelta(seconds=1)
            messages = [each.envelope() for outcome in outcomes for each in outcome.outputs]
            counts: dict[str, int] = {"outputs": len(messages)}
            for outcome in outcomes:
                counts[outcome.status.value] = counts.get(outcome.status.value, 0) + 1
            record = await ledger.commit_round(record, number, counts, len(messages))
            all_outcomes += outcomes
            if not messages:
                break
        if publish:
            await ledger.publish(record)
        return all_outcomes

    def write(self, record: BatchRecord, number: int, outcomes: Sequence[Outcome]) -> None:
        rows = [
            {
                "message_id": each.envelope.message_id,
                "type": each.envelope.type,
                "handler": each.handler,
                "business_id": each.business_id,
                "status": each.status.value,
                "reason": each.reason and each.reason.value,
                "error": each.error,
                "version": each.version,
                "outputs": [
                    {
                        **one._asdict(),
                        "enqueued_at": to_datetime(one.enqueued_at),
                        "headers": [*one.headers.items()],
                    }
                    for one in each.outputs
                ],
                "delivery": each.envelope.to_json() if each.is_dead_letter else None,
            }
            for each in outcomes
        ]
        write_round(Path(record.out), record, number, rows)

    def publication(self, record: BatchRecord, target: str, *, why: str = "") -> None:
        """Record that two of four slices were sent, and one output was refused."""

        async def begin() -> None:
            publications = Publications(self.table, self.clock)
            publication = await publications.begin(f"{record.batch_id}-0123456789ab", target, 4, 4)
            for number in range(2):
                claim = await publications.claim(publication, number, None, "holder", timedelta(minutes=1))
                assert claim is not None
                refused = Record("output-1", "Hit", GAME, "ShootingRange", Result.NOT_SENT, why)
                await claim.note(5, [refused] if why else [])
                await claim.finish(5)

        drive(begin())


def fire(number: int, game: int, position: int, type_: str = "FireAt") -> Envelope:
    """Return a shot of a game, or the start of a round."""
    body = json.dumps({"game_id": str(UUID(int=game, version=4)), "position": position})
    return Envelope(
        str(UUID(int=number, version=4)),
        type_,
        body,
        sequence=number,
        enqueued_at=1_772_330_400_000_000 + number,
    )


def played(folder: Path, games: int = 8, nights: int = 5, shots: int = 60) -> Explored:
    """Return a table on which games were played for some nights, with duplicates and dead letters."""
    explored, chance = Explored(folder), random.Random(7)
    number, before = 1000, list[Envelope]()
    for night in range(nights):
        messages = [fire(number + game, game, 40, "StartNewRound") for game in range(1, games + 1)]
        number += 100
        for _ in range(shots * (night + 2) // 2):
            number += 1
            messages.append(fire(number, chance.randrange(1, games + 1), chance.randrange(38, 42)))
        broken = messages[-1]._replace(
            message_id=f"broken-{night}", body='{"game_id": "' + GAME + '", "position": "far"}'
        )
        strange = broken._replace(message_id=f"strange-{night}", type="FireAtWill", body="{}")
        explored.batch([*messages, *before[: 10 * night], broken, strange])
        before = messages
        explored.time += timedelta(days=1)
    record = drive(Ledger(explored.table, explored.clock).get("night-1"))
    explored.publication(record, "kafka://broker:9092", why="the topic is missing")
    return explored
