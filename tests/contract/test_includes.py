"""Rows that are changed in one transaction with a stream, and several changes of one row in one write."""

from itertools import product

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
    "key", ["SS-HEAD", "SS-SE-0000000001", "SS-UID-x", "sibling|SS-HEAD", "a|b|SS-SE-0000000009"]
)
def test_a_row_of_a_stream_cannot_be_included(run, stream, refuses, key):
    with refuses(ValueError, match="belongs to a stream"):
        write(run, stream, Include.insert_or_replace(key, {}))


# Several changes of one row in one write come to what they would come to one after the other.

CHANGES = {
    "insert": Include.insert,
    "replace": lambda key, properties: Include.replace(key, properties, "*"),
    "merge": lambda key, properties: Include.merge(key, properties, "*"),
    "delete": lambda key, _: Include.delete(key, "*"),
    "insert_or_merge": Include.insert_or_merge,
    "insert_or_replace": Include.insert_or_replace,
}
FIRST, SECOND = {"A": 1, "B": 1}, {"B": 2, "C": 2}
ABSENT = {"A": None, "B": None, "C": 2}  # what is None is not there: a merge keeps the row's own

# One write could not tell whether there is a row to delete.
ONLY_IN_TWO_WRITES = {("insert_or_merge", "delete"), ("insert_or_replace", "delete")}


@pytest.fixture(params=[None, {"B": 0, "D": 0}], ids=["no row", "a row"])
def before(request, run, table):
    """Give what two rows hold, "together" and "apart"."""
    if request.param is not None:
        inserts = [Operation.insert(key, request.param) for key in ("together", "apart")]
        run(table.transact("orders-7", inserts))
    return request.param


@pytest.fixture
def changed(run, partition, before, rows):
    """Write includes; return the row that they changed, or why they were refused."""
    run(Stream.provision(partition))

    def changed(*includes):
        try:
            write(run, run(Stream.open(partition)), *includes)
        except (IncludeConflictError, ValueError) as error:
            return type(error)
        found = rows().get(includes[0].row_key)
        return None if found is None else found.properties

    return changed


@pytest.mark.parametrize(("first", "second"), list(product(CHANGES, CHANGES)))
@pytest.mark.parametrize("further", [SECOND, ABSENT], ids=["values", "None"])
def test_a_pair_in_one_write_comes_to_what_two_writes_come_to(
    changed, contents, before, first, second, further
):
    rows_before = contents()
    together = changed(CHANGES[first]("together", FIRST), CHANGES[second]("together", further))
    rows_after = contents()
    apart = changed(CHANGES[first]("apart", FIRST))
    if apart is not IncludeConflictError:
        apart = changed(CHANGES[second]("apart", further))

    if together in (IncludeConflictError, ValueError):
        assert rows_after == rows_before
    if (first, second) == ("insert", "delete"):
        assert together == before  # nothing is sent, so nobody sees whether the row was there
    elif (first, second) in ONLY_IN_TWO_WRITES:
        assert (together, apart) == (ValueError, None)
    elif together is ValueError:
        assert apart is IncludeConflictError
    else:
        assert together == apart
