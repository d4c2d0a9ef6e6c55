from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eventstore import InvalidKeyError, Operation

PER_EXAMPLE = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30)
TRICKY = st.text(
    st.sampled_from("/\\#?%'~\x00\t\n\x7f\x85 \",;:&+=()[]{}|$!*@<>^`aZ0éß你\u2028\ufeff😀"),
    min_size=1,
    max_size=12,
)
KEYS = st.one_of(TEXT, TRICKY)


@PER_EXAMPLE
@given(partition_key=KEYS, row_key=KEYS)
def test_any_text_can_be_a_key(run, table, partition_key, row_key):
    (etag,) = run(table.transact(partition_key, [Operation.insert_or_replace(row_key, {"V": 1})]))
    (etag,) = run(table.transact(partition_key, [Operation.replace(row_key, {"V": 2}, etag)]))

    row = run(table.get(partition_key, row_key))
    assert (row.partition_key, row.row_key, row.etag, row.properties) == (
        partition_key,
        row_key,
        etag,
        {"V": 2},
    )
    assert run(table.query(partition_key, row_key, row_key)).rows == (row,)
    assert row in run(table.scan(row_key, partition_key, partition_key)).rows

    run(table.transact(partition_key, [Operation.delete(row_key, etag)]))
    assert run(table.get(partition_key, row_key)) is None


@PER_EXAMPLE
@given(row_keys=st.sets(KEYS, min_size=2, max_size=12))
def test_different_texts_are_different_keys(run, table, row_keys):
    run(table.transact("p", [Operation.insert(key, {"K": key}) for key in row_keys]))

    rows = run(table.query("p", "", "\uffff")).rows
    run(table.transact("p", [Operation.delete(key) for key in row_keys]))

    found = {row.row_key: row.properties["K"] for row in rows}
    assert found == {key: key for key in row_keys if key in found}
    # Beyond ASCII the services order keys each in their own way, and so end a range.
    assert {key for key in row_keys if key.isascii()} <= found.keys()


@pytest.mark.parametrize("key", ["", "half \ud83d", "x" * 513, "/" * 171, "😀" * 257])
def test_a_key_that_no_table_holds_is_refused(run, table, contents, key):
    with pytest.raises(InvalidKeyError):
        run(table.transact("orders-7", [Operation.insert("ok", {}), Operation.insert(key, {})]))
    with pytest.raises(InvalidKeyError):
        run(table.transact(key, [Operation.insert("ok", {})]))
    with pytest.raises(InvalidKeyError):
        run(table.get(key, "ok"))
    with pytest.raises(InvalidKeyError):
        run(table.get("ok", key))
    with pytest.raises(InvalidKeyError):
        run(table.query(key, "a", "b"))

    assert contents() == ()


@pytest.mark.parametrize("key", ["x" * 512, "/" * 170, "😀" * 256, "é" * 512])
def test_the_longest_keys_are_taken(run, table, key):
    run(table.transact(key, [Operation.insert(key, {"V": 1})]))

    assert run(table.get(key, key)).properties == {"V": 1}
