from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from eventstore import Include, Verb
from eventstore.header import combine

FIRST = {"A": 1, "B": 1}
SECOND = {"B": 2, "C": 2}
MERGED = {"A": 1, "B": 2, "C": 2}


def change(verb, properties, etag="*"):
    make = {
        Verb.INSERT: lambda: Include.insert("row", properties),
        Verb.REPLACE: lambda: Include.replace("row", properties, etag),
        Verb.MERGE: lambda: Include.merge("row", properties, etag),
        Verb.DELETE: lambda: Include.delete("row", etag),
        Verb.INSERT_OR_MERGE: lambda: Include.insert_or_merge("row", properties),
        Verb.INSERT_OR_REPLACE: lambda: Include.insert_or_replace("row", properties),
    }
    return make[verb]()


VERBS = list(Verb)
NOTHING = "nothing"
ERROR = "error"
# What two changes of one row come to, as if they were carried out one after the other.
TABLE = {
    (Verb.INSERT, Verb.INSERT): ERROR,
    (Verb.INSERT, Verb.REPLACE): (Verb.INSERT, SECOND),
    (Verb.INSERT, Verb.MERGE): (Verb.INSERT, MERGED),
    (Verb.INSERT, Verb.DELETE): NOTHING,
    (Verb.INSERT, Verb.INSERT_OR_MERGE): (Verb.INSERT, MERGED),
    (Verb.INSERT, Verb.INSERT_OR_REPLACE): (Verb.INSERT, SECOND),
    (Verb.REPLACE, Verb.INSERT): ERROR,
    (Verb.REPLACE, Verb.REPLACE): (Verb.REPLACE, SECOND),
    (Verb.REPLACE, Verb.MERGE): (Verb.REPLACE, MERGED),
    (Verb.REPLACE, Verb.DELETE): (Verb.DELETE, {}),
    (Verb.REPLACE, Verb.INSERT_OR_MERGE): (Verb.REPLACE, MERGED),
    (Verb.REPLACE, Verb.INSERT_OR_REPLACE): (Verb.REPLACE, SECOND),
    (Verb.MERGE, Verb.INSERT): ERROR,
    (Verb.MERGE, Verb.REPLACE): (Verb.REPLACE, SECOND),
    (Verb.MERGE, Verb.MERGE): (Verb.MERGE, MERGED),
    (Verb.MERGE, Verb.DELETE): (Verb.DELETE, {}),
    (Verb.MERGE, Verb.INSERT_OR_MERGE): (Verb.MERGE, MERGED),
    (Verb.MERGE, Verb.INSERT_OR_REPLACE): (Verb.REPLACE, SECOND),
    (Verb.DELETE, Verb.INSERT): (Verb.REPLACE, SECOND),
    (Verb.DELETE, Verb.REPLACE): ERROR,
    (Verb.DELETE, Verb.MERGE): ERROR,
    (Verb.DELETE, Verb.DELETE): ERROR,
    (Verb.DELETE, Verb.INSERT_OR_MERGE): (Verb.REPLACE, SECOND),
    (Verb.DELETE, Verb.INSERT_OR_REPLACE): (Verb.REPLACE, SECOND),
    (Verb.INSERT_OR_MERGE, Verb.INSERT): ERROR,
    (Verb.INSERT_OR_MERGE, Verb.REPLACE): (Verb.INSERT_OR_REPLACE, SECOND),
    (Verb.INSERT_OR_MERGE, Verb.MERGE): (Verb.INSERT_OR_MERGE, MERGED),
    (Verb.INSERT_OR_MERGE, Verb.DELETE): ERROR,
    (Verb.INSERT_OR_MERGE, Verb.INSERT_OR_MERGE): (Verb.INSERT_OR_MERGE, MERGED),
    (Verb.INSERT_OR_MERGE, Verb.INSERT_OR_REPLACE): (Verb.INSERT_OR_REPLACE, SECOND),
    (Verb.INSERT_OR_REPLACE, Verb.INSERT): ERROR,
    (Verb.INSERT_OR_REPLACE, Verb.REPLACE): (Verb.INSERT_OR_REPLACE, SECOND),
    (Verb.INSERT_OR_REPLACE, Verb.MERGE): (Verb.INSERT_OR_REPLACE, MERGED),
    (Verb.INSERT_OR_REPLACE, Verb.DELETE): ERROR,
    (Verb.INSERT_OR_REPLACE, Verb.INSERT_OR_MERGE): (Verb.INSERT_OR_REPLACE, MERGED),
    (Verb.INSERT_OR_REPLACE, Verb.INSERT_OR_REPLACE): (Verb.INSERT_OR_REPLACE, SECOND),
}


def test_there_is_a_rule_for_each_pair():
    assert set(TABLE) == set(product(VERBS, VERBS))


@pytest.mark.parametrize(("first", "second"), TABLE, ids=lambda verb: verb.value)
def test_two_changes_of_one_row_come_to(first, second):
    expected = TABLE[first, second]
    changes = [change(first, FIRST), change(second, SECOND)]

    if expected == ERROR:
        with pytest.raises(ValueError, match="'row'"):
            combine(changes)
        return
    combined = combine(changes)
    assert [(include.verb, include.properties) for include in combined] == (
        [] if expected == NOTHING else [expected]
    )


@pytest.mark.parametrize("verb", VERBS)
def test_a_row_that_was_inserted_and_deleted_may_be_inserted_again(verb):
    undone = [change(Verb.INSERT, FIRST), change(Verb.DELETE, {})]

    if verb in (Verb.REPLACE, Verb.MERGE, Verb.DELETE):
        with pytest.raises(ValueError, match="'row' has an insert and a delete"):
            combine([*undone, change(verb, SECOND)])
        return
    assert combine([*undone, change(verb, SECOND)]) == (change(Verb.INSERT, SECOND),)


def test_the_condition_of_the_first_change_is_kept():
    (combined,) = combine([change(Verb.REPLACE, FIRST, "one"), change(Verb.REPLACE, SECOND)])
    (same,) = combine([change(Verb.REPLACE, FIRST, "one"), change(Verb.DELETE, {}, "one")])

    assert (combined.etag, same.etag) == ("one", "one")


def test_one_row_cannot_be_bound_to_two_etags():
    with pytest.raises(ValueError, match="two ETags"):
        combine([change(Verb.REPLACE, FIRST, "one"), change(Verb.REPLACE, SECOND, "two")])


def test_changes_of_different_rows_keep_their_order():
    includes = [Include.insert(key, {}) for key in "cab"]

    assert combine(includes) == tuple(includes)


@pytest.mark.parametrize("first", [Verb.INSERT, Verb.INSERT_OR_MERGE, Verb.INSERT_OR_REPLACE])
@pytest.mark.parametrize("further", [Include.replace("row", SECOND), Include.merge("row", SECOND)])
def test_after_an_insert_no_etag_is_needed(first, further):
    with_any = replace(further, etag="*")

    assert combine([change(first, FIRST), further]) == combine([change(first, FIRST), with_any])


def test_to_undo_an_insert_needs_no_etag():
    assert combine([change(Verb.INSERT, FIRST), Include.delete("row")]) == ()


@pytest.mark.parametrize(
    "include", [Include.replace("row", {}), Include.merge("row", {}), Include.delete("row")]
)
def test_a_first_change_of_a_row_that_must_be_there_needs_an_etag(include):
    with pytest.raises(ValueError, match=r"needs the row's ETag, or '[*]'"):
        combine([include])
