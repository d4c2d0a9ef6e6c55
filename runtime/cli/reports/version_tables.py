"""State versions as tables."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.text import Text

from runtime.cli.reports.tables import Cell, compact_json, make_facts, make_table, moment_cell, moment_text
from runtime.cli.reports.versions import describe_version
from runtime.storage.head import Head
from runtime.storage.readable_states import changes, decode
from runtime.storage.version import Version

_COLUMNS = ("version", "message", "type", "now", "enqueued at", "batch", "changed")
_STATES = ("before", "after")


def facts_of_stream(title: str, head: Head) -> RenderableType:
    """Return what a stream's header says."""
    facts: list[tuple[str, Cell]] = [
        ("versions", head.versions),
        ("kept from", head.kept_from),
        ("newest", moment_text(head.last_now)),
        ("horizon", moment_text(head.horizon)),
        ("letters that wait", head.waiting.count),
    ]
    if head.tombstone is not None:
        then = "and refuses all messages" if head.refuses else "and began a new history"
        facts.append(("forgotten", f"{moment_text(head.tombstone.at)}, {then}"))
    return make_facts(title, facts)


def table_of_versions(title: str, listed: Sequence[Version], *, diff: bool) -> RenderableType:
    """Return a row for each version, with its state or with what it changed."""
    last = "changes" if diff else "state"
    return make_table(title, [*_COLUMNS, last], (_row(stored, diff=diff) for stored in listed))


def facts_of_version(title: str, stored: Version, *, with_states: bool) -> Iterator[RenderableType]:
    """Give all that is recorded of a version, and the states before and after it."""
    described = describe_version(stored, whole=True, diff=False)
    states = {name: described.pop(name) for name in _STATES}
    del described["version"]
    yield make_facts(title, [(name.replace("_", " "), _fact(value)) for name, value in described.items()])
    if with_states:
        for name, state in states.items():
            yield Text(f"\nstate {name}", "dim")
            yield json.dumps(state, indent=2, ensure_ascii=False)


def table_of_changes(stored: Version) -> RenderableType:
    """Return a row for each field that a version changed."""
    found = changes(decode(stored.before), decode(stored.after))
    if not found:
        return Text("The state did not change.")
    rows = [(change.field, compact_json(change.before), compact_json(change.after)) for change in found]
    return make_table("Changes of the state", ("field", "before", "after"), rows)


def _row(stored: Version, *, diff: bool) -> tuple[Cell, ...]:
    version = stored.record
    return (
        stored.number,
        stored.message_id,
        version.type,
        moment_cell(version.now),
        moment_cell(version.enqueued_at),
        stored.batch,
        "yes" if version.after is not None else "no",
        _changes_text(stored) if diff else compact_json(decode(stored.after)),
    )


def _changes_text(stored: Version) -> str | None:
    found = changes(decode(stored.before), decode(stored.after))
    return (
        ", ".join(f"{each.field}: {compact_json(each.before)} → {compact_json(each.after)}" for each in found)
        or None
    )


def _fact(value: object) -> Cell:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return compact_json(value) if value else None
    return value if isinstance(value, str | int) else None
