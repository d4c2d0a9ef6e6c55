"""Random damage of what a table keeps beside streams of states: a check tells it, or it stands nowhere else."""

import re
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventstore import Int64, Table, drive
from handlers import CodecError
from runtime import StoredDataError
from runtime.errors import BatchRefusedError, LeaseHeldError, RetriesExhaustedError, UsageError
from runtime.maintenance.check import check_table
from tests.unit.runtime.maintenance.damaged import Rows, table_of
from tests.unit.runtime.maintenance.kept import READERS, kept
from tests.unit.runtime.maintenance.test_damage_is_told_mended_or_harmless import SLOW
from tests.unit.runtime.maintenance.worlds import Damage, other_value
from tests.unit.runtime.tables import rows

SAID = (BatchRefusedError, CodecError, LeaseHeldError, OSError, RetriesExhaustedError, UsageError)
"""What readers may say of a row that is another one now, and can be read."""

TOLD_ONCE: dict[str, set[str]] = {
    r"\w+-.* ENTITY": {
        "Algorithm", "State", "StateSchema", "Version", "LastNow", "Outbox", "Forgotten", "Refuses",
        "LettersBeyondLimit",
    },
    r"\w+-.* DOCUMENTS-.*": {"RegisteredAt", "Batch", "BatchNumber", "GivenUpAt"},
    r"\w+-.* ID-.*": {"Fingerprint", "AddedAt"},
    r"_batches !next": {"FirstBatch", "Next", "Algorithm"},
    r"_batches !of-table": {"Handlers", "App", "DrawKey"},
    r"_batches [^!].*": {
        "Input", "Out", "Token", "Rounds", "LastRoutable", "StartedAt", "Attempt", "Count_processed",
        "Number", "UpdatedAt", "Status",
    },
    r"_issued .*": {"Out"},
    r"_lease .*": {"Holder", "Token", "TakenAt", "ExpiresAt"},
    r"_letters .*": set(),
    r"_policies .*": {
        "Hold", "SetAt", "RedeliveryWindow", "AllowUndated", "OlderThan", "KeepLast", "AcknowledgedAfter",
    },
    r"_publishing .*": {
        "Target", "Slices", "StartedAt", "Type", "BusinessId", "Handler", "Why", "Holder", "Token",
        "ExpiresAt", "FirstAt", "Position", "InDoubt", "IsSent", "Customer",
    },
    r"deliveries\..*": {"Value", "Holder", "ExpiresAt", "Key", "End", "At", "Why"},
    r"tokens\..*": {"Used"},
}  # fmt: skip
"""By partition and row, what another value of the same type cannot be seen of: nothing else in the table tells it."""

ALONE = (
    r"_publishing [sr]:|_letters|_policies|_issued|_lease|_batches !of-table|deliveries\.|tokens\.|"
    r"\w+-.* (ID-|DOCUMENTS-)"
)
"""Rows whose loss cannot be seen; nor can that of all rows of a partition, or of the last ones of an object."""

OPTIONAL = {
    "Forgotten", "Refuses", "Outbox", "State", "LettersBeyondLimit", "Batch", "BatchNumber", "App",
    "DrawKey", "Handlers", "Attempt", "OlderThan", "KeepLast", "AcknowledgedAfter", "Why", "Used",
    "GivenUpAt", "Count_processed",
}  # fmt: skip
"""Properties that a sound row may lack."""


@st.composite
def damaged(draw: st.DrawFn, found: Rows) -> tuple[Damage, tuple[str, str], str | None, Any]:
    """Return rows of which one is gone, has another key, or has another value of a property."""
    place = draw(st.sampled_from(sorted(found)))
    rest = {key: row for key, row in found.items() if key != place}
    what = draw(st.sampled_from(["delete", "move", *["property"] * 6]))
    if what == "property" and found[place]:
        name = draw(st.sampled_from(sorted(found[place])))
        value = draw(other_value(found[place][name]))
        row = {key: each for key, each in {**found[place], name: value}.items() if each is not None}
        return Damage(f"{place} {name} is {value!r}", {**rest, place: row}), place, name, value
    if what == "move":
        new = (place[0], place[1] + draw(st.sampled_from(["x", "-", "1", " "])))
        return Damage(f"{place} is at {new}", {**rest, new: found[place]}), place, None, new
    return Damage(f"{place} is gone", rest), place, None, None


def is_told_nowhere(found: Rows, place: tuple[str, str], name: str | None, value: Any) -> bool:
    """Say whether a damage is of what stands nowhere else, and reads well."""
    if name is None:
        is_last = not any(key == place[0] and row != place[1] for key, row in found)
        return bool(re.match(ALONE, " ".join(place))) or (value is None and is_last)
    names = next((names for where, names in TOLD_ONCE.items() if re.match(where, " ".join(place))), set())
    if value is None:
        return name in names and name in OPTIONAL
    return name in names and _kind(value) is _kind(found[place][name])


def _kind(value: Any) -> type:
    return int if isinstance(value, Int64) else type(value)


def told(table: Table) -> set[str]:
    return {fault.stream for fault in drive(check_table(table)).faults}


def view(table: Table, name: str) -> str | None:
    """Return what a reader gives, None for what it may say of damage; anything else that it raises is a failure."""
    try:
        found: object = drive(READERS[name](table))  # type: ignore[arg-type] # coroutines
    except (StoredDataError, *SAID):
        return None
    return re.sub("etag='[^']*'", "", repr(found))


@cache
def views() -> dict[str, str | None]:
    return {name: view(table_of(kept()), name) for name in READERS}


def told_or_harmless(data: st.DataObject) -> None:
    damage, place, name, value = data.draw(damaged(kept()))
    found = told(table_of(damage.rows))
    seen = {reader: view(table_of(damage.rows), reader) for reader in READERS}
    if not found and not is_told_nowhere(kept(), place, name, value):
        assert seen == views()
    assert {key for key in found if not key.startswith("tokens.")} <= {place[0]}
    mend(damage.rows, place)


def mend(found: Rows, place: tuple[str, str]) -> None:
    table = table_of(found)
    checked = drive(check_table(table, repair=True))
    if checked.repaired:
        assert checked.faults == []
        assert told(table) == set()
        if place[1] in {fault.row for fault in checked.repaired}:
            assert rows(table)[place] == kept()[place]
    else:
        assert rows(table) == found


def test_a_sound_table_is_sound_and_read():
    assert told(table_of(kept())) == set()
    assert [name for name, found in views().items() if found is None] == []


@pytest.mark.parametrize("examples", [15, pytest.param(500, marks=pytest.mark.thorough)])
def test_damage_is_told_or_stands_nowhere_else(examples):
    settings(max_examples=examples, suppress_health_check=SLOW)(given(st.data())(told_or_harmless))()
