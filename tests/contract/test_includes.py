"""Several changes of one row in one write come to what they would come to one after the other."""

from itertools import product

import pytest

from eventstore import Include, IncludeConflictError, Operation, Stream
from tests.support.streams import event

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
def changed(run, partition, before, contents):
    """Write includes; return the row that they changed, or why they were refused."""
    run(Stream.provision(partition))

    def changed(*includes):
        try:
            run(Stream.write(run(Stream.open(partition)), event(1), includes=includes))
        except (IncludeConflictError, ValueError) as error:
            return type(error)
        return next((row.properties for row in contents() if row.row_key == includes[0].row_key), None)

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
