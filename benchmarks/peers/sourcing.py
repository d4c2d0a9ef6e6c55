"""`eventsourcing`: the library of that name on its SQLite or PostgreSQL module, one message at a time.

As its documentation has it: an aggregate whose method triggers an event, and an application that gets it from the
repository, calls it and saves it. An event carries the message's id, so that the aggregate knows the messages that
it has handled. `eventsourcing` has the library's defaults, and reads an aggregate's events each time;
`eventsourcing-cached` turns its cache of aggregates on, which is for applications that are the only writer.
Durable: every event is committed with the database's defaults (SQLite's under WAL), with fsync of each commit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar
from urllib.parse import urlsplit
from uuid import UUID

from eventsourcing.application import AggregateNotFoundError, Application
from eventsourcing.domain import Aggregate, event

from benchmarks.contender import Contender
from benchmarks.logs import Log
from benchmarks.postgres import OnPostgres
from benchmarks.shooting import (
    Delivery,
    States,
    decode,
    decode_state,
    encode_state,
    handle,
    initial_state,
)
from samples.shooting_range.handlers import FireAt, StartNewRound


class Game(Aggregate):
    """One game: its state as JSON, and the ids of the messages that it has handled."""

    @event("Begun")
    def __init__(self, game_id: UUID) -> None:
        self.game_id = game_id
        self.state = encode_state(initial_state())
        self.handled_ids: set[str] = set()

    @staticmethod
    def create_id(game_id: UUID) -> UUID:
        """Return the id of the aggregate: the game's own."""
        return game_id

    @event("Handled")
    def handled(self, message_id: str, state: str) -> None:
        """Take over what the handler returned."""
        self.handled_ids.add(message_id)
        self.state = state


class Games(Application[UUID]):
    """Handles messages."""

    def process(self, delivery: Delivery) -> None:
        """Handle one message, unless its game has handled it already."""
        message = decode(delivery.type, delivery.body)
        assert isinstance(message, FireAt | StartNewRound)  # noqa: S101 - there are no others in these logs
        game = self._get(message.game_id)
        if delivery.message_id in game.handled_ids:
            return
        state = decode_state(game.state)
        state, _ = handle(state, delivery.type, message, delivery.message_id, str(message.game_id))
        game.handled(delivery.message_id, encode_state(state))
        self.save(game)

    def state(self, game_id: UUID) -> str:
        """Return the newest state of a game."""
        return self._get(game_id).state

    def _get(self, game_id: UUID) -> Game:
        try:
            game: Game = self.repository.get(game_id)
        except AggregateNotFoundError:
            return Game(game_id)
        return game


class Eventsourcing(Contender):
    """Handle messages with the library's defaults."""

    durability = "one event for each version in SQLite, fsync of each"
    settings: ClassVar[Mapping[str, str]] = {}
    games: Games
    deliveries: Sequence[Delivery]

    def prepare(self, log: Log, folder: Path) -> None:
        """Make an application with a new file."""
        self.deliveries = log.in_order()
        self._game_ids = [UUID(game) for game in log.expected()]
        self.games = Games(env={**self.module(folder), **self.settings})

    def module(self, folder: Path) -> Mapping[str, str]:
        """Return how the library is told where its events are."""
        return {"PERSISTENCE_MODULE": "eventsourcing.sqlite", "SQLITE_DBNAME": str(folder / "events.db")}

    def work(self) -> None:
        """Handle all messages, one after another."""
        for delivery in self.deliveries:
            self.games.process(delivery)

    def states(self) -> States:
        """Ask the application for each game."""
        return {str(game_id): self.games.state(game_id) for game_id in self._game_ids}

    def finish(self) -> None:
        """Close the file."""
        self.games.close()


class EventsourcingCached(Eventsourcing):
    """Handle messages with all aggregates in the library's cache."""

    durability = "as eventsourcing; reads from its cache of aggregates"
    settings: ClassVar[Mapping[str, str]] = {
        "AGGREGATE_CACHE_MAXSIZE": "100000",
        "AGGREGATE_CACHE_FASTFORWARD": "n",
    }


class EventsourcingPostgres(OnPostgres, Eventsourcing):
    """Handle messages with the library's defaults and its PostgreSQL module."""

    durability = "one event for each version in PostgreSQL, fsync of each"

    def module(self, folder: Path) -> Mapping[str, str]:  # noqa: ARG002 - as for a file
        """Make a database."""
        self.make_database()
        parts = urlsplit(self.url)
        return {
            "PERSISTENCE_MODULE": "eventsourcing.postgres",
            "POSTGRES_DBNAME": parts.path.removeprefix("/"),
            "POSTGRES_HOST": str(parts.hostname),
            "POSTGRES_PORT": str(parts.port),
            "POSTGRES_USER": str(parts.username),
            "POSTGRES_PASSWORD": "",
        }

    def finish(self) -> None:
        """Close the connections, and drop the database."""
        self.games.close()
        super().finish()
