"""`check_table` finds damage of every kind, and rebuilds nothing but what is derived from other rows."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zlib import crc32

import msgpack
import pytest

from eventstore import Int64, Operation, Table, connect, drive
from eventstore.keys import escape
from runtime.algorithms.outbox.stores import FIRST_IN_CHAIN as FIRST
from runtime.algorithms.outbox.stores import Token, TokenStore, first_name
from runtime.ledger.batch import BatchContext
from runtime.maintenance.check import Checked, check_table
from runtime.versions.index import PREFIX
from tests.unit.runtime.diary import write
from tests.unit.runtime.indexes import check_index
from tests.unit.runtime.maintenance.damaged import (
    STREAM,
    WITH_RUNS,
    Rows,
    changed,
    sound,
    table_of,
)
from tests.unit.runtime.maintenance.test_all_that_a_table_keeps import kept
from tests.unit.runtime.tables import rows
from tests.unit.runtime.worker import Worker, ends

Place = tuple[str, str]

INDEX = next(place for place in sound() if place[0] == WITH_RUNS and place[1].startswith(PREFIX))
HEAD, TAIL_HEAD = (WITH_RUNS, "SS-HEAD"), (STREAM, "SS-HEAD")
RUN, SECOND, BEYOND = ((WITH_RUNS, f"SS-SE-{number:010d}") for number in (1, 2, 9))
LETTERS = (STREAM, "SS-LTR-0000000000000001")
LETTER = next(place for place in sound() if place[0] == "_letters")
PAST = next(place for place in kept() if place[1].startswith("!past-") and place[1].endswith("b-2"))
OPEN, COUNTER = ("_batches", "!open-b-1"), ("_batches", "!next")
BATCH, ENDED, GIVEN_UP = (("_batches", f"b-{number}") for number in (1, 2, 3))
MARKER = ("Diary-r-1", "DOCUMENTS")
ENTITY, LETTERS_OF_ENTITY = ("Diary-o-1", "ENTITY"), ("Diary-o-1", "SS-LTR-0000000000000001")
PUBLICATION, SLICE, NO_SLICE = (
    ("_publishing", row_key)
    for row_key in ("p:b-2-0123456789ab", "s:b-2-0123456789ab:000001", "s:b-2-0123456789ab:000002")
)
FOREIGN_TOKEN = ("tokens.c", "first")


def without(found: Rows, *places: Place) -> Rows:
    return {place: row for place, row in found.items() if place not in places}


def moved(found: Rows, place: Place, to: Place) -> Rows:
    return {**without(found, place), to: found[place]}


def tail_with(field: int, change: Callable[[Any], Any], *, fits: bool = False) -> Rows:
    """Return the sound rows but for one field in the tail, whose checksum fits or is as it was."""
    form, checksum, body = msgpack.unpackb(sound()[TAIL_HEAD]["Tail"])
    fields = msgpack.unpackb(body)
    fields[field] = change(fields[field])
    body = msgpack.packb(fields)
    return changed(sound(), TAIL_HEAD, "Tail", msgpack.packb((form, crc32(body) if fits else checksum, body)))


def checked(found: Rows, *, repair: bool = False) -> tuple[Checked, Rows]:
    table = table_of(found)
    return drive(check_table(table, repair=repair)), rows(table)


def faults(found: Rows) -> set[Place]:
    return {(each.stream, each.row) for each in checked(found)[0].faults}


OLD = changed(sound(), TAIL_HEAD, "LastLetter", None)
REDRIVEN = changed(sound(), TAIL_HEAD, "LastLetter", Int64(9))


@pytest.mark.parametrize("found", [sound(), kept(), OLD, REDRIVEN], ids=["streams", "all", "old", "redriven"])
def test_a_sound_table_has_no_faults(found):
    assert faults(found) == set()


REPORTED: dict[str, tuple[Rows, set[Place]]] = {
    # Streams
    "a header": (changed(sound(), TAIL_HEAD, "StateVersions", "4"), {TAIL_HEAD}),
    "a count of versions": (changed(sound(), HEAD, "StateVersions", 700), {HEAD}),
    "a watermark": (changed(sound(), HEAD, "FirstVersion", 2), {HEAD, RUN}),
    "the first version that is kept": (changed(sound(), HEAD, "KeptFrom", Int64(2)), {HEAD}),
    "the newest state": (changed(sound(), TAIL_HEAD, "State", b'{"lines":[]}'), {TAIL_HEAD}),
    "no state": (changed(sound(), TAIL_HEAD, "State", None), {TAIL_HEAD}),
    "the schema of the state": (changed(sound(), TAIL_HEAD, "StateSchema", 2), {TAIL_HEAD}),
    "the time of the newest version": (changed(sound(), TAIL_HEAD, "LastNow", None), {TAIL_HEAD}),
    "letters that are counted and gone": (changed(sound(), TAIL_HEAD, "Letters", 3), {TAIL_HEAD}),
    "letters": (changed(sound(), LETTERS, "Letters", b"?"), {LETTERS, TAIL_HEAD}),
    "a run": (changed(sound(), RUN, "Data", b"?"), {RUN}),
    "the ids of a run": (changed(sound(), RUN, "Ids", sound()[SECOND]["Ids"]), {INDEX}),
    "the times of a run": (changed(sound(), RUN, "Newest", None), {RUN}),
    "a run that is gone": (without(sound(), RUN), {RUN}),
    "a run in the place of another": ({**sound(), RUN: sound()[SECOND]}, {HEAD, SECOND, (WITH_RUNS, PREFIX)}),
    "a run that no header counts": ({**sound(), BEYOND: sound()[RUN]}, {BEYOND}),
    "no header": (without(sound(), HEAD), {place for place in sound() if place[0] == WITH_RUNS} - {HEAD}),
    "an index, and a run": (changed(changed(sound(), INDEX, "Ends", b""), RUN, "Data", b"?"), {INDEX, RUN}),
    "the count of a tail": (tail_with(4, lambda count: count + 1), {TAIL_HEAD}),
    "the count of a tail, with its checksum": (tail_with(4, lambda count: count + 1, fits=True), {TAIL_HEAD}),
    "an id in a tail": (tail_with(6, lambda ids: ids[:-1] + bytes([ids[-1] ^ 1])), {TAIL_HEAD}),
    "a batch in a tail": (tail_with(7, lambda parts: parts.replace(b"\xa1b", b"\xa1c")), {TAIL_HEAD}),
    "the number of segments": (tail_with(3, lambda length: length + 1), {TAIL_HEAD}),
    # The ledger
    "the row of a batch": (changed(sound(), ("_batches", "b"), "Rounds", "none"), {("_batches", "b")}),
    "the marker of an open batch that is gone": (without(kept(), BATCH), {OPEN}),
    "a batch with another id": (moved(kept(), BATCH, ("_batches", "b-9")), {OPEN, ("_batches", "b-9")}),
    "a marker and a batch that differ": ({**kept(), OPEN: {"Number": Int64(9)}}, {OPEN}),
    "two batches with one number": (changed(kept(), GIVEN_UP, "Number", Int64(1)), {GIVEN_UP}),
    "a counter that is gone": (without(kept(), COUNTER), {COUNTER}),
    "a counter that gives numbers twice": (changed(kept(), COUNTER, "Next", Int64(2)), {COUNTER}),
    # Publications
    "slices and letters without publication": (
        without(kept(), PUBLICATION), {place for place in kept() if place[0] == "_publishing"} - {PUBLICATION},
    ),
    "a slice beyond the last": (moved(kept(), SLICE, NO_SLICE), {NO_SLICE}),
    # Entities
    "letters without entity": (without(kept(), ENTITY), {LETTERS_OF_ENTITY}),
    "an entity without its letters": (without(kept(), LETTERS_OF_ENTITY), {ENTITY}),
    "an entity of no algorithm": (changed(kept(), ENTITY, "Algorithm", "?"), {ENTITY}),
    # Rows that stand for themselves
    "a letter of the table": (changed(sound(), LETTER, "Letters", b"?"), {LETTER}),
    "a policy": (changed(sound(), ("_policies", "!"), "SetAt", 7), {("_policies", "!")}),
    "a token of no handler": ({**kept(), FOREIGN_TOKEN: {}}, {FOREIGN_TOKEN}),
}  # fmt: skip


@pytest.mark.parametrize("what", REPORTED)
def test_what_may_be_lost_is_reported_and_left_alone(what):
    found, places = REPORTED[what]

    told, after = checked(found, repair=True)

    assert {(fault.stream, fault.row) for fault in told.faults} == places
    assert (told.repaired, after) == ([], found)


REBUILT: dict[str, tuple[Rows, Rows, Place]] = {
    "an index that is gone": (sound(), without(sound(), INDEX), (WITH_RUNS, PREFIX)),
    "a row below the watermark": (
        sound(), {**sound(), (WITH_RUNS, "SS-SE-0000000000"): sound()[RUN]}, (WITH_RUNS, "SS-SE-0000000000"),
    ),
    "letters that are not counted": (sound(), changed(sound(), TAIL_HEAD, "Letters", None), TAIL_HEAD),
    "a last letter below a letter": (kept(), changed(kept(), ENTITY, "LastLetter", Int64(0)), ENTITY),
    "entries that are not counted": (kept(), changed(kept(), ENTITY, "Pending", 0), ENTITY),
    "rows of letters that are not counted": (kept(), changed(kept(), ENTITY, "LetterRows", None), ENTITY),
    "an open batch without marker": (kept(), without(kept(), OPEN), BATCH),
    "a marker without number": (kept(), {**kept(), OPEN: {}}, OPEN),
    "a marker of another type": (kept(), {**kept(), OPEN: {"Number": "1"}}, OPEN),
    "a batch that ended without marker": (kept(), without(kept(), PAST), ENDED),
    "registrations without their marker": (kept(), without(kept(), MARKER), MARKER),
    "the marker of a batch that is gone": (without(kept(), ENDED, PAST), without(kept(), ENDED), PAST),
}  # fmt: skip


@pytest.mark.parametrize("what", REBUILT)
def test_what_is_derived_from_other_rows_is_rebuilt_when_that_is_asked_for(what):
    expected, found, place = REBUILT[what]

    before, unchanged = checked(found)
    told, after = checked(found, repair=True)

    assert [(fault.stream, fault.row) for fault in before.faults] == [place]
    assert (before.repaired, unchanged) == ([], found)
    assert (told.faults, [fault.row for fault in told.repaired]) == ([], [place[1]])
    assert faults(after) == set()
    if "index" not in what:  # its hashes have a new key
        assert after == expected


@pytest.mark.parametrize("value", [None, b"", b"\0" * 12, "text", 7])
@pytest.mark.parametrize("name", ["Hashes", "Key", "Ends", "First", "FirstEvent", "Count"])
def test_the_index_is_rebuilt(name, value):
    table = table_of(changed(sound(), INDEX, name, value))

    told = drive(check_table(table, repair=True))

    assert {each.stream for each in told.repaired} == {WITH_RUNS}
    assert told.faults == []
    assert drive(check_table(table)).faults == []
    check_index(table, WITH_RUNS)
    again = Worker(table, batch=BatchContext("later"), business_id="d-2")
    assert ends(again.process(*[write(each, diary="d-2") for each in "ab"])) == ["duplicate"] * 2


def test_a_used_token_that_no_entity_waits_to_delete_is_reported():
    table = table_of(kept())
    of_another = Token("chain", FIRST, "Bell")  # whose entities are not in the table
    of_nobody = Token.named(first_name("old"), "Diary")
    tokens = TokenStore(table)
    for token in (of_another, of_nobody):
        drive(tokens.issue([token]))
        drive(tokens.create(token, [Token(token.chain, "f" * 32 + "-0", "Other")]))

    told = drive(check_table(table, repair=True))

    found = [(fault.stream, fault.row) for fault in told.faults]
    assert found == [(f"tokens.{of_nobody.chain}", of_nobody.row_key)]
    assert told.repaired == []


def spoilt(folder: Path, found: Rows, *places: Place) -> Table:
    """Return a table in an SQLite file, some of whose rows hold bytes that no backend writes."""
    store: Any = connect(f"sqlite:///{folder}/store.db")
    table: Table = drive(store.table("states"))
    for key in {key for key, _ in found}:
        inserts = [Operation.insert(place[1], row) for place, row in found.items() if place[0] == key]
        drive(table.transact(key, inserts))
    execute = store.connection().execute
    for place in places:
        this = "id = (SELECT id FROM states_keys WHERE partition = ? AND row = ?)"
        execute(f"UPDATE states_rows SET small = x'07' WHERE {this}", tuple(map(escape, place)))
    return table


EVERY = {**{place: row for place, row in sound().items() if place[0] != "_batches"}, **kept()}
OF_KINDS = {(re.sub(r"[0-9a-f]{32}", "", key), row_key[:6]): (key, row_key) for key, row_key in EVERY}


@pytest.mark.parametrize("place", OF_KINDS.values(), ids="-".join)
def test_a_row_that_cannot_be_decoded_is_a_fault_and_the_others_are_read(tmp_path, place):
    table = spoilt(tmp_path, EVERY, place)

    told = drive(check_table(table, repair=place != INDEX))

    assert place in {(each.stream, each.row) for each in told.faults}
    assert {each.stream for each in told.faults} == {place[0]}
    assert (told.rows, told.repaired) == (len(EVERY), [])


def test_all_rows_that_cannot_be_decoded_are_faults_and_those_of_the_index_are_rebuilt(tmp_path):
    told = drive(check_table(spoilt(tmp_path, EVERY, *EVERY)))
    assert {(each.stream, each.row) for each in told.faults} == set(EVERY)

    (tmp_path / "index").mkdir()
    table = spoilt(tmp_path / "index", sound(), INDEX)
    assert [each.row for each in drive(check_table(table, repair=True)).repaired] == [INDEX[1]]
    assert drive(check_table(table)).faults == []
