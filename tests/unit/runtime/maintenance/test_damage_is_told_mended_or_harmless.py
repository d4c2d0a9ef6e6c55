"""Random damage of random tables: a check tells it, or it changes nothing; what is repaired is as it was."""

from functools import cache
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eventstore import Int64, Table, drive
from eventstore.header import HEADER
from handlers import CodecError
from runtime import StoredDataError
from runtime.algorithms.state_based.truncation import TruncationChoices, truncate_stream
from runtime.ledger.batch import BatchContext, OpenBatches
from runtime.maintenance.check import check_table
from runtime.messages.envelope import Envelope
from tests.unit.runtime.diary import misbehave, ponder, write
from tests.unit.runtime.maintenance.damaged import Rows, small_segments, table_of
from tests.unit.runtime.patience import PATIENCE
from tests.unit.runtime.tables import memory_table, rows
from tests.unit.runtime.worker import DAY, NOW, ToldClock, Worker

WORLDS = 24
DIARIES = ("d-1", "d-2", "d-3")
_RULES = TruncationChoices(keep_last=3, allow_undated=True).as_of(NOW + DAY, OpenBatches())


def _groups(seed: int, diary: str) -> list[list[Envelope]]:
    """Return the messages of a stream as they were committed together; three or more become a run."""
    random = Random(f"{seed} {diary}")
    groups = []
    for group in range(random.randint(1, 6)):
        messages = []
        for number in range(random.choice([1, 1, 2, 3, 5])):
            name, time = f"{diary} {group} {number}", random.choice([None, NOW - 9 * DAY + group])
            what = ponder if random.random() < 0.25 else write
            messages.append(what(name, diary=diary, enqueued_at=time))
        if random.random() < 0.15:
            messages.append(misbehave("fail", f"{diary} {group} bad", diary=diary))
        groups.append(messages)
    return groups


@cache
def world(seed: int) -> Rows:
    """Return the rows of a table with three streams, of which some were truncated."""
    table = memory_table()
    with small_segments():
        for diary in DIARIES:
            clock = ToldClock()
            worker = Worker(table, batch=BatchContext("b", number=1), business_id=diary, clock=clock)
            for group in _groups(seed, diary):
                worker.process(*group)
                clock.now += 1_000_000
            if Random(f"cut {seed} {diary}").random() < 0.4:
                drive(truncate_stream(table, f"Diary-{diary}", _RULES, PATIENCE))
    return rows(table)


def run_again(table: Table, seed: int) -> list[object]:
    """Deliver the whole log of a world again, and some new messages; return what became of each."""
    ended: list[object] = []
    for diary in DIARIES:
        again = [message for group in _groups(seed, diary) for message in group]
        new = [write(f"{diary} new {number}", diary=diary) for number in range(4)]
        worker = Worker(
            table, batch=BatchContext("c", number=2), business_id=diary, clock=ToldClock(NOW + 9 * DAY)
        )
        ended += worker.process(*again, *new)
    return ended


@cache
def undisturbed(seed: int) -> list[object]:
    return run_again(table_of(world(seed)), seed)


def _flipped(draw: st.DrawFn, data: bytes) -> bytes:
    at = draw(st.integers(0, max(len(data) - 1, 0)))
    match draw(st.sampled_from(["flip", "cut", "longer", "empty"])):
        case "flip" if data:
            return data[:at] + bytes([data[at] ^ 1 << draw(st.integers(0, 7))]) + data[at + 1 :]
        case "cut":
            return data[:at]
        case "longer":
            return data + b"\0"
    return b""


@st.composite
def other_value(draw: st.DrawFn, value: Any) -> Any:
    """Return what a property holds after damage, None when it is gone."""
    if isinstance(value, bytes) and draw(st.integers(0, 9)):
        return _flipped(draw, value)
    if isinstance(value, int) and not isinstance(value, bool) and draw(st.integers(0, 3)):
        number = draw(st.sampled_from([value + 1, value - 1, value ^ 4, -value, 0, value << 8]))
        return type(value)(min(number, 2**31 - 1)) if isinstance(value, Int64) else min(number, 2**31 - 1)
    return draw(st.sampled_from([None, None, "text", 7, b"\0", True, Int64(2**40)]))


class Damage:
    """What somebody did to the rows of a table, and the rows after it, which are too many to be shown."""

    def __init__(self, what: str, rows: Rows) -> None:
        self.what = what
        self.rows = rows

    def __repr__(self) -> str:
        return self.what


@st.composite
def damaged(draw: st.DrawFn, found: Rows) -> Damage:
    """Return rows of which one property is another one, or one row is gone, elsewhere, or there twice."""
    places = sorted(found)
    place = draw(st.sampled_from(places))
    others = [each for each in places if each[0] == place[0] or HEADER not in (each[1], place[1])]
    other = draw(st.sampled_from(others))
    match draw(st.sampled_from(["property"] * 6 + ["delete", "swap", "copy", "beside"])):
        case "delete":
            return Damage(f"delete {place}", {key: row for key, row in found.items() if key != place})
        case "swap":
            return Damage(f"swap {place} {other}", {**found, place: found[other], other: found[place]})
        case "copy":
            return Damage(f"copy {place} {other}", {**found, other: found[place]})
        case "beside":
            new = (other[0], _beside(draw, other[1]))
            return Damage(f"copy {place} {new}", {**found, new: found[place]})
    name = draw(st.sampled_from(sorted(found[place])))
    value = draw(other_value(found[place][name]))
    row = {key: each for key, each in {**found[place], name: value}.items() if each is not None}
    return Damage(f"{place} {name} is {value!r}", {**found, place: row})


def _beside(draw: st.DrawFn, row_key: str) -> str:
    """Return a key near that of a row."""
    if not row_key[-1].isdecimal():
        return draw(st.sampled_from(["SS-SE-0000000001", "SS-SE-0000000099", "SS-IDX-0000000000000001"]))
    number = int(row_key[-4:]) + draw(st.sampled_from([-1, 1, 2, 90]))
    return f"{row_key[:-4]}{max(number, 0):04d}"


UNSEEN = {
    HEADER: {
        "Horizon", "UndatedCut", "LettersBeyondLimit", "LastLetter", "StateSchema", "Forgotten", "Refuses",
    },
    "SS-SE-": {"Commits"},
}  # fmt: skip
"""What nothing else in a table tells: that it was changed cannot be seen."""


def seen(found: Rows) -> dict[tuple[str, str], object]:
    """Return rows without what stands nowhere else, and without the keys of hashes, which are new in a new index."""
    return {
        (key, row): {
            name: value
            for name, value in values.items()
            if not any(row.startswith(kind) and name in names for kind, names in UNSEEN.items())
        }
        for (key, row), values in found.items()
        if not row.startswith("SS-IDX-")
    }


def is_whole_stream_gone(sound: Rows, found: Rows) -> bool:
    """Say whether nothing is left of a stream."""
    return {key for key, _ in sound} != {key for key, _ in found}


SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]


def test_sound_tables_have_no_faults():
    for seed in range(WORLDS):
        assert drive(check_table(table_of(world(seed)))).faults == []


def told_mended_or_harmless(data: st.DataObject) -> None:
    seed = data.draw(st.integers(0, WORLDS - 1))
    sound = world(seed)
    found = data.draw(damaged(sound)).rows
    table = table_of(found)
    told = drive(check_table(table, repair=True))
    if told.faults:
        left = {fault.stream for fault in told.faults}
        assert left.isdisjoint(fault.stream for fault in told.repaired)
        assert of_streams(left, rows(table)) == of_streams(left, found)
        only_errors_that_name_the_place(found, seed)
        return
    mended = rows(table)
    assert drive(check_table(table)).faults == []
    if is_whole_stream_gone(sound, mended):
        return
    if seen(mended) != seen(sound) or mended == sound or told.repaired:
        assert run_again(table, seed) == undisturbed(seed)


def of_streams(streams, found):
    return {place: row for place, row in found.items() if place[0] in streams}


def only_errors_that_name_the_place(found, seed) -> None:
    try:
        run_again(table_of(found), seed)
    except StoredDataError as error:
        named = [error.store, error.table, error.stream, error.row]
    except CodecError:
        return  # the newest state, which no app can read
    else:
        return
    assert all(named), named


@pytest.mark.parametrize("examples", [50, pytest.param(800, marks=pytest.mark.thorough)])
def test_damage_is_told_mended_or_harmless(examples):
    settings(max_examples=examples, suppress_health_check=SLOW)(given(st.data())(told_mended_or_harmless))()
