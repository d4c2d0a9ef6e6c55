"""The settings of a table, shared by all its users: the owner, and the secret of keyed draws.

The row of the settings sorts between the counter and the open batches, so one query returns all three.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

from eventstore import ConcurrencyConflictError, Operation, Row, RowError, Store, Table, Value, pages
from handlers import App
from runtime.errors import UsageError
from runtime.retries import RetryPolicy, until_undisturbed
from runtime.versions.properties import expect, reading_row, rows_between, text, written

LEDGER = "_batches"  # the partition of the ledger. Keys of streams contain a hyphen, so this is none.

OF_TABLE = "!of-table"  # the row of the settings. It sorts between `!next` and `!open-…`.

KEY_BYTES = 32
_BETWEEN = ","

Draws = Literal["plain", "keyed"]  # keyed draws also depend on a secret of the table


@dataclass(frozen=True, slots=True)
class TableOwner:
    """The app that owns a table."""

    name: str | None  # of the app, if it has one
    handlers: frozenset[str]  # all handlers that have worked on the table

    @classmethod
    def of(cls, app: App) -> TableOwner:
        """Return the owner that a new table of `app` has."""
        return cls(app.name, frozenset(app.handlers))

    def is_same(self, other: TableOwner) -> bool:
        """Return whether `other` may be the same app.

        If this app has a name, both names must be equal. Otherwise the handlers of one must include those of the other.
        """
        if self.name is not None:
            return self.name == other.name
        return self.handlers <= other.handlers or other.handlers <= self.handlers

    def after(self, other: TableOwner) -> TableOwner:
        """Return the owner after `other` has used the table: it has the name of `other` and the handlers of both."""
        return TableOwner(other.name, self.handlers | other.handlers)

    def __str__(self) -> str:
        names = ", ".join(sorted(self.handlers))
        return f"the app with the handlers {names}" if self.name is None else f"the app {self.name}"


@dataclass(frozen=True, slots=True)
class TableSettings:
    """The settings of a table."""

    owner: TableOwner | None = None
    draw_key: bytes | None = field(default=None, repr=False)  # the secret of keyed draws; None: plain draws
    etag: str | None = None  # None: no settings are stored
    follows: str | None = None  # the table whose history this one reprocesses
    switched_to: str | None = None  # the table that took over
    switched_as: bytes | None = None  # a digest of the contents of that table when it took over

    @classmethod
    async def of(cls, table: Table) -> TableSettings:
        """Read the settings of a table. Costs one request. Raises `StoredDataError` if they are corrupt."""
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
        """Claim a table for an app, as a batch does. Returns the settings for `Processor`.

        `draws` chooses keyed draws for a new table. `adopt` takes over a table of another app. Raises `UsageError` if
        the table belongs to another app, was switched or cannot have these draws, and `RetriesExhaustedError` after too
        many conflicts for `retries`. Costs one request, or two if the settings change. Choosing keyed draws costs one
        more for every 1,000 rows.
        """
        demands = TableDemands(TableOwner.of(app), draws, adopt)

        async def attempt() -> TableSettings:
            rows = {row.row_key: row async for row in rows_between(table, LEDGER, "!", OF_TABLE)}
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

    def check_use(self, follows: str | None = None) -> None:
        """Raise `UsageError` if the table was switched to another table, or reprocesses a table other than `follows`.

        `follows`: the table that the caller reprocesses into this table, or `None` if the caller handles messages.
        """
        if self.switched_to is not None:
            raise UsageError(f"The table was switched to {self.switched_to}: use that, or switch back.")
        if not is_same_table(self.follows, follows):
            raise UsageError(
                f"The table is in use, so it cannot reprocess {follows}: choose another --into."
                if self.follows is None
                else f"The table reprocesses {self.follows}: run `consistent switch` before you use it."
            )

    def check_owner(self, owner: TableOwner) -> None:
        """Raise `UsageError` if the table belongs to another app."""
        if self.owner is not None and not self.owner.is_same(owner):
            raise UsageError(
                f"The table belongs to {self.owner}, and this is {owner}: use another table, or take this one over "
                f"with --adopt."
            )

    def operation(self) -> Operation:
        """Return an operation that stores the settings, unless they have changed since they were read."""
        owner = self.owner
        values: dict[str, Value | None] = {
            "Handlers": None if owner is None else _BETWEEN.join(sorted(owner.handlers)),
            "App": None if owner is None else owner.name,
            "DrawKey": self.draw_key,
            "Follows": self.follows,
            "SwitchedTo": self.switched_to,
            "SwitchedAs": self.switched_as,
        }
        properties = {name: value for name, value in values.items() if value is not None}
        return written(OF_TABLE, properties, self.etag)


@dataclass(frozen=True, slots=True)
class TableDemands:
    """The settings that a batch requires of its table."""

    owner: TableOwner
    draws: Draws | None = None  # None: unchanged, or plain in a new table
    adopt: bool = False  # whether to take over a table of another app
    follows: str | None = None  # the table whose history is reprocessed into this table
    draw_key: bytes | None = field(default=None, repr=False)  # of the table `follows`

    async def settings_after(self, table: Table, old: TableSettings, *, has_batches: bool) -> TableSettings:
        """Return the settings that replace `old`. Raises `UsageError` if the table cannot meet the demands.

        Costs one request per 1,000 rows to choose keyed draws or reprocessing in a table without batches, else none.
        """
        is_new = self.follows is not None and old == TableSettings() and not has_batches
        if is_new and not await has_objects(table):
            old = replace(old, follows=self.follows, draw_key=self.draw_key)
        old.check_use(self.follows)
        if old.owner is None or self.adopt:
            after = replace(old, owner=self.owner)
        else:
            old.check_owner(self.owner)
            after = replace(old, owner=old.owner.after(self.owner))
        if self.draws is None or (self.draws == "keyed") == (old.draw_key is not None):
            return after
        if self.draws == "plain":
            raise UsageError("The table was created with keyed draws, which cannot change: omit --draws.")
        if has_batches or await has_objects(table):
            raise UsageError(
                "Keyed draws must be chosen before a table handles its first message: omit --draws, or use a new table."
            )
        return replace(after, draw_key=secrets.token_bytes(KEY_BYTES))


async def has_objects(table: Table) -> bool:
    """Return whether a table has rows of business objects. Costs one request per 1,000 rows until it finds one."""
    async for page in pages(partial(table.scan, None, select=[])):
        if any("-" in row.partition_key for row in page.rows):
            return True
    return False


def read_settings(row: Row) -> TableSettings:
    """Decode the row of the settings. Raises `StoredDataError` if the row is corrupt."""
    values = row.properties
    with reading_row("The row of the table's settings", row):
        key = expect(values.get("DrawKey"), bytes, None)
        if key is not None and len(key) != KEY_BYTES:
            raise ValueError(f"the draw key has {len(key)} bytes instead of {KEY_BYTES}")
        owner = None
        if "Handlers" in values:
            name = text(values, "App") if "App" in values else None
            owner = TableOwner(name, frozenset(text(values, "Handlers").split(_BETWEEN)))
        follows, switched_to = (expect(values.get(name), str, None) for name in ("Follows", "SwitchedTo"))
        switched_as = expect(values.get("SwitchedAs"), bytes, None)
        return TableSettings(owner, key, row.etag, follows, switched_to, switched_as)


def is_same_table(name: str | None, other: str | None) -> bool:
    """Return whether two names mean the same table, or both are missing. Case is ignored, as in SQLite and Azure."""
    return (name or "").lower() == (other or "").lower()


async def open_current(store: Store, name: str, *, make: bool = True) -> tuple[str, Table]:
    """Open a table, or the table that it was switched to. Return the name and the table.

    `make=False` raises `TableNotFoundError` for a missing table `name`. Costs one request per table, besides opening.
    """
    table = await store.table(name, make=make)
    settings = await TableSettings.of(table)
    if settings.switched_to is None:
        return name, table
    return await open_current(store, settings.switched_to, make=False)
