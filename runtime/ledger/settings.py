"""The settings of a table: whose it is, and the secret of its draws. They hold for all who work on it.

They are in a row of the ledger that stands behind the counter of batches, so that reading them costs no request where
the counter or the open batches are read.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

from eventstore import ConcurrencyConflictError, Operation, Partition, Row, RowError, Table, Value, pages
from eventstore.reading import read_rows
from handlers import App
from runtime.errors import UsageError
from runtime.retries import RetryPolicy, until_undisturbed
from runtime.versions.properties import expect, reading_row, text

LEDGER = "_batches"
"""The partition of the ledger: no stream's key is like it, as theirs hold a hyphen after the handler."""

OF_TABLE = "!of-table"
"""The row of the settings: between the counter, `!next`, and the markers of open batches, `!open-…`."""

KEY_BYTES = 32
_BETWEEN = ","

Draws = Literal["plain", "keyed"]  # by the message alone, or by a secret of the table too


@dataclass(frozen=True, slots=True)
class TableOwner:
    """The app that a table belongs to: its name, if it has one, and the handlers that have worked on the table."""

    name: str | None
    handlers: frozenset[str]

    @classmethod
    def of(cls, app: App) -> TableOwner:
        """Return an app as the owner of a table that has nothing of others."""
        return cls(app.name, frozenset(app.handlers))

    def is_same(self, other: TableOwner) -> bool:
        """Return whether another app may be this one: by its name or, without one, with more or fewer handlers."""
        if self.name is not None:
            return self.name == other.name
        return self.handlers <= other.handlers or other.handlers <= self.handlers

    def after(self, other: TableOwner) -> TableOwner:
        """Return the owner of the table once the same app has worked on it with these handlers."""
        return TableOwner(other.name, self.handlers | other.handlers)

    def __str__(self) -> str:
        names = ", ".join(sorted(self.handlers))
        return f"the app with the handlers {names}" if self.name is None else f"the app {self.name}"


@dataclass(frozen=True, slots=True)
class TableSettings:
    """Settings that hold for all users of a table; `etag` is None before the first. Plain draws have no `draw_key`."""

    owner: TableOwner | None = None
    draw_key: bytes | None = field(default=None, repr=False)
    etag: str | None = None

    @classmethod
    async def of(cls, table: Table) -> TableSettings:
        """Read the settings of a table. Costs a request. Raises `StoredDataError`."""
        row = await table.get(LEDGER, OF_TABLE)
        return cls() if row is None else read_settings(row)

    @classmethod
    async def claim(
        cls,
        table: Table,
        app: App,
        *,
        draws: Draws | None = None,
        adopt: bool = False,
        retries: RetryPolicy | None = None,
    ) -> TableSettings:
        """Make a table an app's own, as a batch does, and return the settings that `Processor` takes.

        `draws` chooses keyed draws for a new table; `adopt` takes over a table of another app. Costs a request, two
        when the settings change, and for keyed draws one more for each 1,000 rows. Raises `UsageError`.
        """
        demands = TableDemands(TableOwner.of(app), draws, adopt)

        async def attempt() -> TableSettings:
            first = await read_rows(Partition.exact(table, LEDGER), "!", OF_TABLE, None)
            rows = {row.row_key: row for row in first}
            own = rows.pop(OF_TABLE, None)
            settings = cls() if own is None else read_settings(own)
            after = await demands.settings_after(table, settings, has_batches=bool(rows))
            if after == settings:
                return settings
            try:
                (etag,) = await table.transact(LEDGER, [after.operation()])
            except RowError as error:
                raise ConcurrencyConflictError(LEDGER, str(error)) from error
            return replace(after, etag=etag)

        return await until_undisturbed((retries or RetryPolicy()).beside(table), attempt)

    def check_owner(self, owner: TableOwner) -> None:
        """Raise `UsageError` when the table belongs to another app."""
        if self.owner is not None and not self.owner.is_same(owner):
            raise UsageError(
                f"The table belongs to {self.owner}, and this is {owner}: use a table of its own, or hand the table "
                f"over by a batch with --adopt."
            )

    def operation(self) -> Operation:
        """Return the change that stores the settings, unless they were changed since they were read."""
        properties: dict[str, Value] = {}
        if self.owner is not None:
            properties["Handlers"] = _BETWEEN.join(sorted(self.owner.handlers))
            if self.owner.name is not None:
                properties["App"] = self.owner.name
        if self.draw_key is not None:
            properties["DrawKey"] = self.draw_key
        if self.etag is None:
            return Operation.insert(OF_TABLE, properties)
        return Operation.replace(OF_TABLE, properties, self.etag)


@dataclass(frozen=True, slots=True)
class TableDemands:
    """A batch's demands on a table: that it is its app's own, and how draws are made."""

    owner: TableOwner
    draws: Draws | None = None  # None for those of the table, or plain ones in a new table
    adopt: bool = False  # whether a table of another app is taken over

    async def settings_after(self, table: Table, old: TableSettings, *, has_batches: bool) -> TableSettings:
        """Return the settings of a table after the batch, given those it has. Raises `UsageError`.

        Keying the draws of a table without batches costs a request for each 1,000 rows; all else costs nothing.
        """
        if old.owner is None or self.adopt:
            after = replace(old, owner=self.owner)
        else:
            old.check_owner(self.owner)
            after = replace(old, owner=old.owner.after(self.owner))
        if self.draws is None or (self.draws == "keyed") == (old.draw_key is not None):
            return after
        if self.draws == "plain":
            raise UsageError(
                "The draws of the table are keyed since it was made, and stay so: leave out --draws."
            )
        if has_batches or await _has_objects(table):
            raise UsageError(
                "Whether draws are keyed is chosen when a table is made, and this one has handled messages without a "
                "key: leave out --draws, or use a new table."
            )
        return replace(after, draw_key=secrets.token_bytes(KEY_BYTES))


async def _has_objects(table: Table) -> bool:
    async for page in pages(partial(table.scan, None, select=[])):
        if any("-" in row.partition_key for row in page.rows):
            return True
    return False


def read_settings(row: Row) -> TableSettings:
    """Return the settings of a table. Raises `StoredDataError`."""
    values = row.properties
    with reading_row("The row of the table's settings", row):
        key = expect(values.get("DrawKey"), bytes, None)
        if key is not None and len(key) != KEY_BYTES:
            raise ValueError(f"the secret of the draws has {len(key)} bytes")
        owner = None
        if "Handlers" in values:
            name = text(values, "App") if "App" in values else None
            owner = TableOwner(name, frozenset(text(values, "Handlers").split(_BETWEEN)))
        return TableSettings(owner, key, row.etag)
