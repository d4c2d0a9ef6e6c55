"""Several changes of one row in one write come to what they would come to one after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import product

import pytest

from eventstore import EventData, Include, IncludeConflictError, Operation, Stream

Change = Callable[[str, Mapping[str, int | None]], Include]

CHANGES: dict[str, Change] = {
    "insert": Include.insert,
    "replace": lambda key, properties: Include.replace(key, properties, "*"),
    "merge": lambda key, properties: Include.merge(key, properties, "*"),
    "delete": lambda key, _: Include.delete(key, "*"),
    "insert_or_merge": Include.insert_or_merge,
    "insert_or_replace": Include.insert_or_replace,
}
PAIRS = list(product(CHANGES, CHANGES))
FIRST, SECOND = {"A": 1, "B": 1}, {"B": 2, "C": 2}
ABSENT = {"A": None, "B": None, "C": 2}  # what is None is not there: a merge keeps the row's own

# One write could not tell whether there is a row to delete.
ONLY_IN_TWO_WRITES = {("insert_or_merge", "delete"), ("insert_or_replace", "delete")}


@pytest.fixture(params=[None, {"B": 0, "D": 0}], ids=["no row", "a row"])
def before(request, run, table):
    """Give what two rows hold, "together" and "apart"."""
    if request.param is not None:
        rows = [Operation.insert(key, request.param) for key in ("together", "apart")]
        run(table.transact("orders-7", rows))
    return request.param


@pytest.fixture
def write(run, partition, before):
    """Write includes; return the row that they changed, or why they were refused."""
    run(Stream.provision(partition))

    def write(*includes):
        stream = run(Stream.open(partition))
        try:
            run(Stream.write(stream, EventData({"N": 1}), includes=includes))
        except (IncludeConflictError, ValueError) as error:
            return type(error)
        found = run(partition.table.get("orders-7", includes[0].row_key))
        return None if found is None else found.properties

    return write


@pytest.mark.parametrize("first", CHANGES)
def test_a_first_change_is_carried_out_as_it_is(write, before, first):
    expected = {
        "insert": IncludeConflictError if before else FIRST,
        "replace": FIRST if before else IncludeConflictError,
        "merge": {**before, **FIRST} if before else IncludeConflictError,
        "delete": None if before else IncludeConflictError,
        "insert_or_merge": {**(before or {}), **FIRST},
        "insert_or_replace": FIRST,
    }

    assert write(CHANGES[first]("together", FIRST)) == expected[first]


@pytest.mark.parametrize(("first", "second"), PAIRS)
@pytest.mark.parametrize("further", [SECOND, ABSENT], ids=["values", "None"])
def test_a_pair_in_one_write_comes_to_what_two_writes_come_to(
    write, contents, before, first, second, further
):
    rows_before = contents()
    together = write(CHANGES[first]("together", FIRST), CHANGES[second]("together", further))
    rows_after = contents()
    apart = write(CHANGES[first]("apart", FIRST))
    if apart is not IncludeConflictError:
        apart = write(CHANGES[second]("apart", further))

    if together in (IncludeConflictError, ValueError):
        assert rows_after == rows_before
    if (first, second) == ("insert", "delete"):
        assert together == before  # nothing is sent, so nobody sees whether the row was there
        return
    if (first, second) in ONLY_IN_TWO_WRITES:
        assert (together, apart) == (ValueError, None)
    elif together is ValueError:
        assert apart is IncludeConflictError
    else:
        assert together == apart
