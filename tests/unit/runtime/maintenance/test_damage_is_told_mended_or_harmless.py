"""Random damage of random tables: a check tells it, or it changes nothing; what is repaired is as it was."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eventstore import drive
from handlers import CodecError
from runtime import StoredDataError
from runtime.maintenance.check import check_table
from tests.unit.runtime.maintenance.damaged import table_of
from tests.unit.runtime.maintenance.worlds import (
    WORLDS,
    damaged,
    is_whole_stream_gone,
    run_again,
    seen,
    undisturbed,
    world,
)
from tests.unit.runtime.tables import rows

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
