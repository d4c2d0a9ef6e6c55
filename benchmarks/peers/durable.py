"""`dbos`: durable workflows of DBOS on SQLite or PostgreSQL, one message at a time.

As its documentation has it: the message's id is the workflow's, so that a redelivered message finds its workflow
done; the state is in a table of a datasource, read and written by a transaction that is a step of the workflow.
Durable: the workflow, its step and the state are committed with the database's defaults (SQLite's are a rollback
journal), with fsync of each commit. Only the newest state is kept; what was published is the
workflow's recorded result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from dbos import DBOS, SetWorkflowID, SQLAlchemyDatasource

from benchmarks.contender import Contender
from benchmarks.logs import Log
from benchmarks.postgres import OnPostgres
from benchmarks.shooting import (
    Delivery,
    States,
    business_id,
    decode,
    decode_state,
    encode_state,
    handle,
    initial_state,
)

_games = sa.Table(
    "games",
    sa.MetaData(),
    sa.Column("business_id", sa.String, primary_key=True),
    sa.Column("state", sa.String, nullable=False),
)


class Durable(Contender):
    """Handle each message in a workflow of its own."""

    durability = "a workflow for each message in SQLite, fsync of each commit"
    deliveries: Sequence[Delivery]
    workflow: Callable[[str, str, str], Any]

    def prepare(self, log: Log, folder: Path) -> None:
        """Launch DBOS on new files and register the workflow."""
        self.deliveries = log.in_order()
        system, games = self.databases(folder)
        DBOS(config={"name": "benchmark", "system_database_url": system})
        self._source = SQLAlchemyDatasource.create(games)
        _games.metadata.create_all(self._source.engine)
        self.workflow = _workflow(self._source)
        DBOS.launch()

    def databases(self, folder: Path) -> tuple[str, str]:
        """Return the urls of the databases of the system and of the states."""
        return f"sqlite:///{folder}/system.sqlite", f"sqlite:///{folder}/games.sqlite"

    def work(self) -> None:
        """Run a workflow for each message, one after another."""
        for message_id, type_, body in self.deliveries:
            with SetWorkflowID(message_id):
                self.workflow(message_id, type_, body)

    def states(self) -> States:
        """Read the table of states."""
        with self._source.engine.connect() as connection:
            rows = connection.execute(sa.select(_games.c.business_id, _games.c.state))
            return {row.business_id: row.state for row in rows}

    def finish(self) -> None:
        """Shut DBOS down, and forget the workflow: the next one has another database."""
        DBOS.destroy(destroy_registry=True)
        self._source.engine.dispose()


class DurablePostgres(OnPostgres, Durable):
    """The same with both in one database of PostgreSQL."""

    durability = "a workflow for each message in PostgreSQL, fsync of each commit"

    def databases(self, folder: Path) -> tuple[str, str]:  # noqa: ARG002 - as for files
        """Make a database."""
        self.make_database()
        url = self.url.replace("postgresql:", "postgresql+psycopg:")
        return url, url

    def finish(self) -> None:
        """Shut DBOS down, and drop the database."""
        Durable.finish(self)
        OnPostgres.finish(self)


def _workflow(source: SQLAlchemyDatasource) -> Callable[[str, str, str], Any]:
    @source.transaction()
    def fold(message_id: str, type_: str, body: str) -> list[list[str]]:
        message = decode(type_, body)
        game = business_id(type_, message)
        session = source.sql_session()
        text = session.scalar(sa.select(_games.c.state).where(_games.c.business_id == game))
        state = decode_state(text) if text else initial_state()
        state, published = handle(state, type_, message, message_id, game)
        values = {"business_id": game, "state": encode_state(state)}
        session.execute(_games.insert() if text is None else _update(game), values)
        return [[output.message_id, output.type, output.body.decode()] for output in published]

    @DBOS.workflow()
    def process(message_id: str, type_: str, body: str) -> list[list[str]]:
        return fold(message_id, type_, body)

    return process


def _update(game: str) -> sa.Update:
    return sa.update(_games).where(_games.c.business_id == game)
