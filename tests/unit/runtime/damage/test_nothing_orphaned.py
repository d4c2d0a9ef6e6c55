"""Rows that belong to others which are not there are named; those that are safe to delete or to make go or come."""

from __future__ import annotations

import pytest

from eventstore import Int64, drive
from runtime.algorithms.outbox.tokens import FIRST, Token, TokenStore, first_name
from runtime.cleanup.checking import Checked, check_table
from tests.unit.runtime.damage.damaged import WITH_RUNS, Rows, sound, table_of
from tests.unit.runtime.damage.kept import kept
from tests.unit.runtime.tables import rows

RUN, BEYOND = "SS-SE-0000000001", "SS-SE-0000000009"
INDEX = next(row for key, row in sound() if key == WITH_RUNS and row.startswith("SS-IDX-"))
PAST = next(place for place in kept() if place[1].startswith("!past-") and place[1].endswith("b-2"))
BATCH, OPEN, COUNTER = ("_batches", "b-1"), ("_batches", "!open-b-1"), ("_batches", "!next")
ENDED = ("_batches", "b-2")
MARKER = ("Diary-r-1", "DOCUMENTS")
ENTITY, LETTERS = ("Diary-o-1", "ENTITY"), ("Diary-o-1", "SS-LTR-0000000000000001")
PUBLICATION = ("_publishing", "p:b-2-0123456789ab")
ATTEMPT = "f" * 32


def without(found: Rows, *places: tuple[str, str]) -> Rows:
    return {place: row for place, row in found.items() if place not in places}


def moved(found: Rows, place: tuple[str, str], row_key: str) -> Rows:
    return {**without(found, place), (place[0], row_key): found[place]}


def copied(found: Rows, place: tuple[str, str], row_key: str) -> Rows:
    return {**found, (place[0], row_key): found[place]}


def checked(found: Rows, *, repair: bool = False) -> tuple[Checked, Rows]:
    table = table_of(found)
    return drive(check_table(table, repair=repair)), rows(table)


MENDED: dict[str, tuple[Rows, Rows, tuple[str, str]]] = {
    "an index that is gone": (sound(), without(sound(), (WITH_RUNS, INDEX)), (WITH_RUNS, "SS-IDX-")),
    "a run that no header counts": (sound(), copied(sound(), (WITH_RUNS, RUN), BEYOND), (WITH_RUNS, BEYOND)),
    "an open batch without marker": (kept(), without(kept(), OPEN), BATCH),
    "a marker without number": (kept(), {**kept(), OPEN: {}}, OPEN),
    "a marker of another type": (kept(), {**kept(), OPEN: {"Number": "1"}}, OPEN),
    "a batch that ended without marker": (kept(), without(kept(), PAST), ENDED),
    "a counter that gives numbers twice": (kept(), {**kept(), COUNTER: {**kept()[COUNTER], "Next": Int64(2)}}, COUNTER),
    "registrations without their marker": (kept(), without(kept(), MARKER), MARKER),
    "the marker of a batch that is gone": (without(kept(), ENDED, PAST), without(kept(), ENDED), PAST),
}  # fmt: skip


@pytest.mark.parametrize("what", MENDED)
def test_what_is_safe_is_made_anew_or_deleted(what):
    expected, found, place = MENDED[what]

    before, _ = checked(found)
    told, after = checked(found, repair=True)

    assert [(fault.stream, fault.row) for fault in before.faults] == [place]
    assert (told.faults, [fault.row for fault in told.repaired]) == ([], [place[1]])
    assert checked(after)[0].faults == []
    if "index" not in what:  # its hashes have a new key
        assert after == expected


LEFT: dict[str, tuple[Rows, set[tuple[str, str]]]] = {
    "the marker of an open batch that is gone": (without(kept(), BATCH), {OPEN}),
    "a batch with another id": (moved(kept(), BATCH, "b-9"), {OPEN, ("_batches", "b-9")}),
    "a marker and a batch that differ": ({**kept(), OPEN: {"Number": Int64(9)}}, {OPEN}),
    "two batches with one number": (
        {**kept(), ("_batches", "b-3"): {**kept()[("_batches", "b-3")], "Number": Int64(1)}}, {("_batches", "b-3")},
    ),
    "a counter that is gone": (without(kept(), COUNTER), {COUNTER}),
    "slices and letters without publication": (
        without(kept(), PUBLICATION), {place for place in kept() if place[0] == "_publishing" and place != PUBLICATION},
    ),
    "a slice beyond the last": (
        moved(kept(), ("_publishing", "s:b-2-0123456789ab:000001"), "s:b-2-0123456789ab:000002"),
        {("_publishing", "s:b-2-0123456789ab:000002")},
    ),
    "letters without entity": (without(kept(), ENTITY), {LETTERS}),
    "an entity without its letters": (without(kept(), LETTERS), {ENTITY}),
    "a token of no handler": ({**kept(), ("tokens.c", "first"): {}}, {("tokens.c", "first")}),
}  # fmt: skip


@pytest.mark.parametrize("what", LEFT)
def test_what_is_not_safe_is_named_and_left(what):
    found, places = LEFT[what]

    told, after = checked(found, repair=True)

    assert {(fault.stream, fault.row) for fault in told.faults} == places
    assert (told.repaired, after) == ([], found)


def test_a_used_token_that_no_entity_waits_to_delete():
    table = table_of(kept())
    of_another = Token("chain", FIRST, "Bell")  # whose entities are not in the table
    of_nobody = Token.named(first_name("old"), "Diary")
    tokens = TokenStore(table)
    for token in (of_another, of_nobody):
        drive(tokens.issue([token]))
        drive(tokens.create(token, [Token(token.chain, f"{ATTEMPT}-0", "Other")]))

    told = drive(check_table(table, repair=True))

    found = [(fault.stream, fault.row) for fault in told.faults]
    assert found == [(f"tokens.{of_nobody.chain}", of_nobody.row_key)]
    assert told.repaired == []
