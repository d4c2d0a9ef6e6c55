"""Rows that are changed in one transaction with a stream."""

import pytest

from eventstore import EventData, Include, IncludeConflictError, Operation, Stream, Value
from tests.support.streams import event

KEPT: dict[str, Value] = {"V": 1, "Kept": "k"}


@pytest.fixture
def stream(run, table, partition):
    run(table.transact(partition.key, [Operation.insert("there", KEPT)]))
    return run(Stream.provision(partition))


@pytest.fixture
def rows(contents):
    return lambda: {row.row_key: row for row in contents() if not row.row_key.startswith("SS-")}


def write(run, stream, *includes):
    return run(Stream.write(stream, event(1), includes=includes))


@pytest.mark.parametrize(
    ("include", "after"),
    [
        (Include.insert("new", {"V": 2}), {"there": KEPT, "new": {"V": 2}}),
        (Include.replace("there", {"V": 2}, "*"), {"there": {"V": 2}}),
        (Include.merge("there", {"V": 2}, "*"), {"there": {"V": 2, "Kept": "k"}}),
        (Include.delete("there", "*"), {}),
        (Include.insert_or_merge("there", {"V": 2}), {"there": {"V": 2, "Kept": "k"}}),
        (Include.insert_or_merge("new", {"V": 2}), {"there": KEPT, "new": {"V": 2}}),
        (Include.insert_or_replace("there", {"V": 2}), {"there": {"V": 2}}),
        (Include.insert_or_replace("new", {"V": 2}), {"there": KEPT, "new": {"V": 2}}),
    ],
)
def test_a_row_is_changed_with_the_event(run, stream, rows, include, after):
    result = write(run, stream, include)

    assert {key: row.properties for key, row in rows().items()} == after
    changed = rows().get(include.row_key)
    assert result.includes[0].etag == (changed.etag if changed else "")
    if changed:
        again = write(run, result.stream, Include.replace(include.row_key, {"V": 3}, changed.etag))
        assert rows()[include.row_key].etag == again.includes[0].etag


@pytest.mark.parametrize(
    "include",
    [
        Include.insert("there", {"V": 2}),
        Include.replace("missing", {"V": 2}, "*"),
        Include.replace("there", {"V": 2}, 'W/"stale"'),
        Include.delete("missing", "*"),
        Include.delete("there", 'W/"stale"'),
    ],
)
def test_an_include_that_is_refused_undoes_the_write(run, stream, refuses, include):
    with refuses(IncludeConflictError) as raised:
        write(run, stream, Include.insert("new", {}), include)

    assert (raised.value.stream, raised.value.row_key) == ("orders-7", include.row_key)


def test_includes_of_events_and_of_the_write_come_in_order(run, stream):
    first = EventData({"N": 1}, includes=[Include.insert("a", {"V": 1})])
    second = EventData({"N": 2}, includes=[Include.insert("b", {"V": 2})])
    result = run(Stream.write(stream, first, second, includes=[Include.insert("c", {"V": 3})]))

    found = [(include.row_key, include.properties) for include in result.includes]
    assert found == [("a", {"V": 1}), ("b", {"V": 2}), ("c", {"V": 3})]


@pytest.mark.parametrize(
    ("include", "told"),
    [
        (Include.insert("new", {}), "several operations on one row"),
        *[(change("there", {}), "needs an ETag") for change in (Include.replace, Include.merge)],
        (Include.delete("there", ""), "needs an ETag"),
    ],
)
def test_a_second_include_of_a_row_and_one_without_a_condition_are_refused(
    run, stream, refuses, include, told
):
    with refuses(ValueError, match=told):
        write(run, stream, Include.insert("new", {}), include)


@pytest.mark.parametrize(
    "key", ["SS-HEAD", "SS-SE-0000000001", "SS-UID-x", "sibling|SS-HEAD", "a|b|SS-SE-0000000009"]
)
def test_a_row_of_a_stream_cannot_be_included(run, stream, refuses, key):
    with refuses(ValueError, match="belongs to a stream"):
        write(run, stream, Include.insert_or_replace(key, {}))
