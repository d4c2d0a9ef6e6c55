"""Policies of a table: retention rules, of which the most specific apply, and holds, which prevent truncation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from eventstore import Int64, Operation, Row, Table, Value, pages
from eventstore.errors import ConcurrencyConflictError, RowError
from eventstore.keys import escape
from runtime.algorithms.state_based.truncation import RetentionRules
from runtime.clock import Clock, to_datetime, to_microseconds
from runtime.errors import UsageError
from runtime.ledger.batch import OpenBatches
from runtime.ledger.settings import TableSettings
from runtime.messages.envelope import canonical
from runtime.retries import RetryPolicy, until_undisturbed
from runtime.versions.properties import INT32, INT64, expect, number, reading_row, rows_between, time, written
from runtime.versions.stream import stream_key

PARTITION = "_policies"  # no stream has this key, because keys of streams contain a hyphen

NO_RULES = (
    "There are no retention rules: add --older-than AGE, --keep-last N or both, or set policies of the table with "
    "`consistent truncate --policy set`."
)

_GENERAL = "!"  # the prefix of row keys of policies of the table and of handlers
_LAST = "~"  # the upper bound of all row keys


@dataclass(frozen=True, slots=True)
class Scope:
    """The scope of a policy: the table, a handler, or a stream."""

    handler: str | None = None
    business_id: str | None = None

    @property
    def row_key(self) -> str:
        """The row key of the policy. A policy of a stream has the stream's key."""
        if self.business_id is not None:
            return f"{self.handler}-{self.business_id}"
        return f"{_GENERAL}{self.handler or ''}"

    @property
    def level(self) -> str:
        """The level: `table`, `handler` or `stream`."""
        if self.handler is None:
            return "table"
        return "handler" if self.business_id is None else "stream"

    @classmethod
    def of(cls, row_key: str) -> Scope:
        """Parse the row key of a policy."""
        if row_key.startswith(_GENERAL):
            return cls(row_key.removeprefix(_GENERAL) or None)
        handler, _, business_id = row_key.partition("-")
        return cls(handler, business_id)

    def __str__(self) -> str:
        if self.handler is None:
            return "the table"
        return self.handler if self.business_id is None else f"{self.handler} {self.business_id}"


@dataclass(frozen=True, slots=True)
class Policy:
    """The retention rules of a scope, if any, and whether its streams are held."""

    scope: Scope
    rules: RetentionRules | None = None
    hold: bool = False
    set_at: int = 0  # in microseconds since 1970 UTC
    etag: str = ""


@dataclass(frozen=True, slots=True)
class Decision:
    """The policy whose rules apply to a stream, if any, and whether the stream is held."""

    rules: Policy | None
    is_held: bool


async def existing(table: Table, scope: Scope) -> Scope:
    """Return a scope with the stored spelling of its business id.

    Raises `UsageError` if the table has no such handler or stream. Costs up to three requests.
    """
    if scope.handler is None:
        return scope
    owner = (await TableSettings.of(table)).owner
    prefix, hint = f"{scope.handler}-", "`consistent show` lists all handlers and streams"
    if "-" not in scope.handler:
        if scope.business_id is not None:
            for spelling in dict.fromkeys((scope.business_id, canonical(scope.business_id))):
                if (await table.query(prefix + spelling, "", _LAST, select=[])).rows:
                    return replace(scope, business_id=spelling)
        elif owner and scope.handler in owner.handlers:
            return scope
        else:
            async for page in pages(partial(table.scan, None, prefix, f"{scope.handler}.", select=[])):
                if page.rows:
                    return scope
            hint = f"it has {', '.join(sorted(owner.handlers))}" if owner else hint
    raise UsageError(f"The table has nothing of {scope}, so a policy would have no effect: {hint}.")


class Policies:
    """Reads and changes the policies of a table: the retention rules and holds that are stored in the table."""

    def __init__(self, table: Table, clock: Clock, retries: RetryPolicy | None = None) -> None:
        self._table = table
        self._clock = clock
        self._retries = (retries or RetryPolicy()).beside(table)

    async def all(self) -> list[Policy]:
        """Return all policies: of the table, then of handlers, then of streams. Costs one request for every 1,000."""
        return await _read(self._table, _GENERAL, _LAST)

    async def has_rules(self) -> bool:
        """Return whether any policy has rules.

        Costs one request for every 1,000 policies up to the first one with rules.
        """
        async for row in rows_between(self._table, PARTITION, _GENERAL, _LAST):
            if read_policy(row).rules:
                return True
        return False

    async def set_rules(self, scope: Scope, rules: RetentionRules) -> Policy:
        """Set or replace the rules of a scope. Costs two requests. Raises `UsageError` for invalid rules."""
        rules.as_of(self._clock(), OpenBatches())
        return await self.change(scope, rules=rules)

    async def remove_rules_of(self, policy: Policy) -> None:
        """Remove the rules of a policy, if any. Costs one request. Raises `RowError` if the policy has changed."""
        if policy.rules is not None:
            await self._write(policy, {"rules": None})

    async def get(self, scope: Scope) -> Policy:
        """Return the policy of a scope, or an empty policy. Costs one request."""
        if scope.business_id is not None:
            stream_key(scope.handler or "")
        row = await self._table.get(PARTITION, scope.row_key)
        return Policy(scope) if row is None else read_policy(row)

    async def change(self, scope: Scope, **changes: object) -> Policy:
        """Change `rules` or `hold` of the policy of a scope, and return the policy. Costs two requests."""

        async def attempt() -> Policy:
            try:
                return await self._write(await self.get(scope), changes)
            except RowError as error:
                raise ConcurrencyConflictError(PARTITION, str(error)) from error

        return await until_undisturbed(self._retries, attempt)

    async def _write(self, policy: Policy, changes: Mapping[str, object]) -> Policy:
        scope = policy.scope
        wanted: Policy = replace(policy, set_at=self._clock(), **changes)  # type: ignore[arg-type] # fields
        if wanted.rules is None and not wanted.hold:
            if policy.etag:
                await self._table.transact(PARTITION, [Operation.delete(scope.row_key, policy.etag)])
            return replace(wanted, etag="")
        if scope.handler is not None:
            stream_key(scope.handler)
        operation = written(scope.row_key, _properties(wanted), policy.etag)
        (etag,) = await self._table.transact(PARTITION, [operation])
        return replace(wanted, etag=etag)


class PolicyReader:
    """Finds the policies of many streams. Policies of the table and of handlers are read once."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._general: Mapping[Scope, Policy] | None = None

    async def decide(self, keys: Sequence[str]) -> list[Decision]:
        """Return the decision for each stream key.

        Costs one request for every 1,000 policies between the first and the last ASCII key, and one for each key that
        is not ASCII.
        """
        if self._general is None:
            general = await _read(self._table, _GENERAL, f"{_GENERAL}{_LAST}")
            self._general = {policy.scope: policy for policy in general}
        # Stores agree only on the order of ASCII keys.
        plain = sorted([key for key in keys if key.isascii()], key=escape)
        found = await _read(self._table, plain[0], plain[-1]) if plain else []
        others = [await self._table.get(PARTITION, key) for key in keys if not key.isascii()]
        found += [read_policy(row) for row in others if row is not None]
        policies = {**self._general, **{policy.scope: policy for policy in found}}
        decisions = []
        for stream in map(Scope.of, keys):
            scopes = (stream, Scope(stream.handler), Scope())
            there = [policies[scope] for scope in scopes if scope in policies]
            rules = next((policy for policy in there if policy.rules is not None), None)
            decisions.append(Decision(rules, any(policy.hold for policy in there)))
        return decisions


async def is_held(table: Table, key: str) -> bool:
    """Return whether a policy holds the stream with this key. Costs two requests."""
    (decision,) = await PolicyReader(table).decide([key])
    return decision.is_held


async def _read(table: Table, first: str, last: str) -> list[Policy]:
    return [read_policy(row) async for row in rows_between(table, PARTITION, first, last)]


def _properties(policy: Policy) -> dict[str, Value]:
    properties: dict[str, Value] = {"Hold": policy.hold, "SetAt": to_datetime(policy.set_at)}
    rules = policy.rules
    if rules is None:
        return properties
    properties |= {"RedeliveryWindow": Int64(rules.redelivery_window), "AllowUndated": rules.allow_undated}
    ages = {"OlderThan": rules.older_than, "AcknowledgedAfter": rules.acknowledged_after}
    properties |= {name: Int64(age) for name, age in ages.items() if age is not None}
    if rules.keep_last is not None:
        properties["KeepLast"] = rules.keep_last
    return properties


def read_policy(row: Row) -> Policy:
    """Parse the row of a policy. Raises `StoredDataError` if the row is corrupt."""
    values, rules = row.properties, None

    def given(name: str, most: int = INT64) -> int | None:
        return number(values, name, most=most) if name in values else None

    with reading_row("The policy", row):
        of_rules = {"RedeliveryWindow", "AllowUndated", "OlderThan", "KeepLast", "AcknowledgedAfter"}
        if not of_rules.isdisjoint(values):
            rules = RetentionRules(
                older_than=given("OlderThan"),
                keep_last=given("KeepLast", INT32),
                redelivery_window=number(values, "RedeliveryWindow"),
                allow_undated=expect(values["AllowUndated"], bool),
                acknowledged_after=given("AcknowledgedAfter"),
            )
        scope, is_held = Scope.of(row.row_key), expect(values["Hold"], bool)
        if scope.row_key != row.row_key or not (rules or is_held):
            raise ValueError("its row key is invalid, or it has neither rules nor a hold")
        return Policy(scope, rules, is_held, to_microseconds(time(values, "SetAt")), row.etag)
