"""Checking a table: sound tables have no faults, damage is told with its row, and the index is made anew."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgpack
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eventstore import Operation, drive
from runtime.batches.context import BatchContext
from runtime.cleanup.checking import check_table
from runtime.errors import StoredDataError
from runtime.storage.id_index import PREFIX
from tests.unit.runtime.damage.damaged import (
    STREAM,
    WITH_RUNS,
    Rows,
    changed,
    damage,
    small_segments,
    sound,
    table_of,
    with_an_outbox,
)
from tests.unit.runtime.damage.test_every_reader_of_stored_bytes import READERS, READERS_OF_ENTITIES, _tell
from tests.unit.runtime.diary import write
from tests.unit.runtime.indexes import check_index
from tests.unit.runtime.tables import contents, rows
from tests.unit.runtime.worker import Worker, ends

INDEX = next(row_key for key, row_key in sound() if key == WITH_RUNS and row_key.startswith(PREFIX))
RUN = "SS-SE-0000000001"


def faults(found) -> set[tuple[str, str]]:
    checked = drive(check_table(table_of(found)))
    return {(each.stream, each.row) for each in checked.faults}


@pytest.mark.parametrize("found", [sound(), with_an_outbox()], ids=["streams", "entity"])
def test_a_sound_table_has_no_faults(found):
    assert faults(found) == set()


DAMAGES = {
    "a header": (STREAM, "SS-HEAD", "StateVersions", "4"),
    "a count of versions": (WITH_RUNS, "SS-HEAD", "StateVersions", 700),
    "the watermark": (WITH_RUNS, "SS-HEAD", "FirstVersion", 2),
    "the newest state": (STREAM, "SS-HEAD", "State", b'{"lines":[]}'),
    "a count of letters": (STREAM, "SS-HEAD", "Letters", 3),
    "letters": (STREAM, "SS-LTR-0000000000000001", "Letters", b"?"),
    "a run": (WITH_RUNS, RUN, "Data", b"?"),
    "a letter of the table": ("_letters", None, "Letters", b"?"),
    "a batch": ("_batches", "b", "Rounds", "none"),
    "a policy": ("_policies", "!", "SetAt", 7),
}


@pytest.mark.parametrize("what", DAMAGES)
def test_damage_is_told_with_its_row(what):
    stream, row, name, value = DAMAGES[what]
    place = next(each for each in sound() if each[0] == stream and row in (None, each[1]))

    found = faults(changed(sound(), place, name, value))

    assert stream in {each for each, _ in found}
    if what != "the watermark":
        assert place in found


def test_a_run_that_is_gone_is_told():
    left = {place: values for place, values in sound().items() if place != (WITH_RUNS, RUN)}

    assert (WITH_RUNS, RUN) in faults(left)


def test_rows_without_a_header_are_told():
    left = {place: values for place, values in sound().items() if place != (WITH_RUNS, "SS-HEAD")}

    assert faults(left) == {place for place in left if place[0] == WITH_RUNS}


@pytest.mark.parametrize("value", [None, b"", b"\0" * 12, "text", 7])
@pytest.mark.parametrize("name", ["Hashes", "Key", "Ends", "First", "FirstEvent", "Count"])
def test_the_index_is_made_anew(name, value):
    table = table_of(changed(sound(), (WITH_RUNS, INDEX), name, value))

    checked = drive(check_table(table, repair=True))

    assert {each.stream for each in checked.repaired} == {WITH_RUNS}
    assert checked.faults == []
    assert drive(check_table(table)).faults == []
    check_index(table, WITH_RUNS)
    again = Worker(table, batch=BatchContext("later"), business_id="d-2")
    assert ends(again.process(*[write(each, diary="d-2") for each in "ab"])) == ["duplicate"] * 2


def test_an_index_that_is_gone_is_made_anew():
    table = table_of({place: values for place, values in sound().items() if place[1] != INDEX})

    assert len(drive(check_table(table, repair=True)).repaired) == 1
    assert drive(check_table(table)).faults == []


def tail_with(field: int, change: Callable[[Any], Any]) -> Rows:
    """Return the sound rows, but for one field in the tail, whose checksum is as it was."""
    form, checksum, body = msgpack.unpackb(sound()[STREAM, "SS-HEAD"]["Tail"])
    fields = msgpack.unpackb(body)
    fields[field] = change(fields[field])
    tail = msgpack.packb((form, checksum, msgpack.packb(fields)))
    return changed(sound(), (STREAM, "SS-HEAD"), "Tail", tail)


def longer_by_one(segments: bytes) -> bytes:
    """Return the only segment of a tail with one version more than it has."""
    length, *others = msgpack.unpackb(segments)
    packed: bytes = msgpack.packb([length + 1, *others])
    return packed


@pytest.mark.parametrize("field", [0, 1, 4, 5, 7])
def test_a_tail_that_its_versions_tell_is_what_it_was_to_the_bit(field):
    table = table_of(tail_with(field, longer_by_one if field == 7 else lambda number: number + 1))

    checked = drive(check_table(table, repair=True))

    assert {each.row for each in checked.repaired} == {"SS-HEAD"}
    assert drive(check_table(table)).faults == []
    assert rows(table) == sound()


@pytest.mark.parametrize(
    ("field", "change"),
    [
        (6, lambda ids: ids[:-1] + bytes([ids[-1] ^ 1])),
        (7, lambda segments: segments.replace(b"\xa1b", b"\xa1c")),
        (3, lambda length: length + 1),
    ],
    ids=["an id", "a batch", "the number of segments"],
)
def test_what_nothing_else_tells_of_a_tail_is_told_and_left_alone(field, change):
    damaged_rows = tail_with(field, change)
    table = table_of(damaged_rows)

    checked = drive(check_table(table, repair=True))
    with pytest.raises(StoredDataError, match="checksum"):
        Worker(table, batch=BatchContext("later")).process(write("a"))

    assert damaged_rows != sound()
    assert {each.row for each in checked.faults} == {"SS-HEAD"}
    assert checked.repaired == []
    assert rows(table) == damaged_rows


def test_nothing_is_written_without_being_asked_for_nor_where_runs_are_damaged():
    twice = changed(changed(sound(), (WITH_RUNS, INDEX), "Ends", b""), (WITH_RUNS, RUN), "Data", b"?")
    for found, repair in ((changed(sound(), (WITH_RUNS, INDEX), "Ends", b""), False), (twice, True)):
        table = table_of(found)
        before = contents(table)

        checked = drive(check_table(table, repair=repair))

        assert checked.faults
        assert checked.repaired == []
        assert contents(table) == before


@given(st.data())
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
def test_whatever_a_reader_stumbles_over_is_a_fault(data):
    base, readers = data.draw(st.sampled_from([(sound(), READERS), (with_an_outbox(), READERS_OF_ENTITIES)]))
    found = data.draw(damage(base))

    told = [error for read in readers.values() if (error := _tell(read, table_of(found))) is not None]

    streams = {error.stream for error in told if error.stream.startswith("Diary-")}
    assert streams <= {stream for stream, _ in faults(found)}


def test_streams_that_are_written_to_and_truncated_have_no_faults():
    table = table_of(sound())
    with small_segments():
        Worker(table, business_id="d-2").process(*[write(each, diary="d-2") for each in "tuvwx"])

    assert drive(check_table(table)).faults == []
    assert rows(table)
    drive(table.transact("other", [Operation.insert("row", {})]))
    assert drive(check_table(table)).faults == []
