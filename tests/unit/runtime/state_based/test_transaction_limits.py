"""Whatever messages and states are like, what a transaction writes keeps to the limits of a table.

Every list of events here is really written: the table refuses rows over 1 MiB, properties over 64 KiB, and
transactions over 100 operations or 4 MiB as sent.
"""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventstore import InterceptedTable, Table
from runtime.versions import limits
from tests.unit.runtime.diary import NOISE, misbehave, ponder, write
from tests.unit.runtime.tables import memory_table, rows
from tests.unit.runtime.worker import Worker, ends, made_by, stored


def runs(table: Table) -> list[int]:
    """Return how many versions each run of the table holds."""
    return [row["Count"] for (_, key), row in sorted(rows(table).items()) if key.startswith("SS-SE-")]


def data_bytes(table: Table) -> list[int]:
    """Return how many bytes of compressed columns each run of the table holds."""
    return [
        sum(len(value) for name, value in row.items() if name.startswith("Data"))
        for (_, key), row in sorted(rows(table).items())
        if key.startswith("SS-SE-")
    ]


def test_a_run_is_closed_at_its_number_of_versions(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(limits, "MAX_RUN_VERSIONS", 5)
    table = memory_table()

    Worker(table).process(*(ponder(str(number)) for number in range(12)))

    assert runs(table) == [5, 5, 2]


def test_a_run_is_closed_at_its_raw_bytes():
    # States of 300 KB of which compression leaves almost nothing: what is read back must not fill the memory.
    table = memory_table()
    messages = [misbehave("fill the diary", message_id=str(number)) for number in range(40)]

    Worker(table).process(*messages)

    most = -(-limits.MAX_RUN_RAW_BYTES // 300_000)
    assert runs(table) == [most, 40 - most]
    assert max(data_bytes(table)) < 10_000
    assert ends(Worker(table, batch="other").process(*messages)) == ["duplicate"] * 40


def test_versions_whose_ids_would_not_fit_one_row_make_several_runs():
    # Ids of 255 characters that take four bytes each.
    table = memory_table()
    messages = [ponder(f"{number:05d}" + "\U0001f4d6" * 250) for number in range(600)]

    Worker(table).process(*messages)

    assert runs(table) == [150, 150, 150, 150]
    assert made_by(table) == [message.message_id for message in messages]


def test_a_run_that_does_not_get_smaller_is_split_into_several_events(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(NOISE, "bytes", 200_000)
    table = memory_table()
    counted = InterceptedTable(table)
    messages = [misbehave("capture noise", message_id=str(number)) for number in range(11)]

    outcomes = Worker(counted, batch="batch-1").process(*messages)

    assert counted.counts["transact"] == 1
    assert len(runs(table)) > 3
    assert max(data_bytes(table)) <= 700 * 1024
    assert [version.number for version in stored(table)] == list(range(1, 12))
    assert Worker(table, batch="batch-1").process(*messages) == outcomes


def test_each_split_run_starts_with_the_state_before_its_first_version(monkeypatch: pytest.MonkeyPatch):
    # So that it can be read, and older runs deleted, without the others.
    monkeypatch.setattr(limits, "MAX_RUN_DATA_BYTES", 200)
    monkeypatch.setattr(limits, "MAX_SEGMENT_BYTES", 0)
    table = memory_table()

    Worker(table).process(*(write(random.randbytes(40).hex(), message_id=str(number)) for number in range(9)))

    assert len(runs(table)) > 3
    versions = stored(table)
    assert [version.before for version in versions[1:]] == [version.after for version in versions[:-1]]


@pytest.mark.parametrize("diary", ["d-1", "日" * 506, "/" * 168, "é" * 506])
def test_a_full_transaction_is_small_enough_however_long_its_key_is(diary, monkeypatch: pytest.MonkeyPatch):
    # The key is sent with each row, escaped, and a row has many properties: both count as bytes of the transaction.
    monkeypatch.setattr(limits, "MAX_RUN_VERSIONS", 1)
    monkeypatch.setitem(NOISE, "bytes", 29_000)
    table = memory_table()
    messages = [misbehave("capture noise", message_id=str(number), diary=diary) for number in range(120)]

    outcomes = Worker(table, business_id=diary).process(*messages)

    assert ends(outcomes) == ["processed"] * 120
    assert runs(table) == [1] * 120


def test_the_newest_state_in_the_header_leaves_room_for_the_events(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(limits, "MAX_RUN_VERSIONS", 1)
    monkeypatch.setitem(NOISE, "bytes", 29_000)
    table = memory_table()
    messages = [misbehave("capture noise", message_id=str(number)) for number in range(120)]

    # A state that just fits the header, beside as many events as fit.
    outcomes = Worker(table).process(write("x" * 16_000, message_id="large"), *messages)

    assert ends(outcomes) == ["processed"] * 121


texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60)


@given(
    messages=st.lists(
        st.tuples(texts, st.integers(0, 3000), st.none() | st.dictionaries(texts, texts)), max_size=25
    ),
    diary=texts.filter(lambda text: len(text.encode()) < 100),
    smaller=st.fixed_dictionaries(
        {
            "MAX_RUN_VERSIONS": st.integers(1, 9),
            "MAX_RUN_RAW_BYTES": st.integers(1, 9000),
            "MAX_RUN_DATA_BYTES": st.integers(1, 9000),
            "MAX_TRANSACTION_RUNS": st.integers(1, 5),
        }
    ),
)
@settings(max_examples=60)
def test_whatever_the_limits_are_all_is_written_and_replayed(messages, diary, smaller):
    deliveries = [
        write(random.randbytes(size // 2).hex(), message_id=message_id, diary=diary, headers=headers)
        for message_id, size, headers in {
            message_id: (message_id, *rest) for message_id, *rest in messages
        }.values()
    ]
    table = memory_table()

    with pytest.MonkeyPatch.context() as patched:
        for name, limit in smaller.items():
            patched.setattr(limits, name, limit)
        outcomes = Worker(table, business_id=diary, batch="b").process(*deliveries)

    assert ends(outcomes) == ["processed"] * len(deliveries)
    assert Worker(table, business_id=diary, batch="b").process(*deliveries) == outcomes
