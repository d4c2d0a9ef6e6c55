from __future__ import annotations

import pytest

from eventstore import InvalidKeyError, Operation, PayloadTooLargeError
from tests.support.payloads import AT_A_LIMIT, KIB, OVER_A_LIMIT

REFUSALS = {
    "characters of a property name": ValueError,
    "characters of a key": InvalidKeyError,
    "characters of two units of a key": InvalidKeyError,
    "characters of an escaped key": InvalidKeyError,
}


def wide_row(count, size):
    return {f"P{number}": b"x" * size for number in range(count)}


@pytest.mark.parametrize("limit", AT_A_LIMIT)
def test_what_is_at_a_limit_is_taken(run, table, limit):
    run(table.transact("orders-7", AT_A_LIMIT[limit]))

    for operation in AT_A_LIMIT[limit]:
        assert run(table.get("orders-7", operation.row_key)).properties == operation.properties


@pytest.mark.parametrize("limit", OVER_A_LIMIT)
def test_what_is_over_a_limit_by_one_is_refused(run, table, refuses, limit):
    with refuses(REFUSALS.get(limit, PayloadTooLargeError)):
        run(table.transact("orders-7", OVER_A_LIMIT[limit]))


def test_the_partition_key_has_the_limit_of_the_row_key(run, table, contents):
    run(table.transact("p" * 512, [Operation.insert("r", {})]))
    with pytest.raises(InvalidKeyError):
        run(table.transact("p" * 513, [Operation.insert("r", {})]))

    assert len(contents("p" * 512)) == 1


def test_a_wrong_partition_key_is_told_before_a_wrong_row_key(run, table):
    with pytest.raises(InvalidKeyError, match="512"):
        run(table.transact("p" * 513, [Operation.insert("", {})]))
    with pytest.raises(InvalidKeyError, match="empty"):
        run(table.transact("p", [Operation.insert("", {})]))


def test_an_oversize_row_after_others_undoes_nothing_because_nothing_was_sent(run, table, refuses):
    with refuses(PayloadTooLargeError, match="'P' has 65,537 bytes"):
        run(table.transact("orders-7", [Operation.insert("a", {}), *OVER_A_LIMIT["bytes of a binary"]]))


@pytest.mark.parametrize("store_url", ["memory", "sqlite"], indirect=True)  # the emulator takes such rows
@pytest.mark.parametrize(
    "merged", [wide_row(200, 1), wide_row(16, 63 * KIB)], ids=["too many properties", "too many bytes"]
)
def test_a_merge_cannot_make_a_row_too_large(run, table, refuses, merged):
    first = {f"Q{name}": value for name, value in merged.items()}
    run(table.transact("orders-7", [Operation.insert("r", first)]))

    with refuses(PayloadTooLargeError):
        run(table.transact("orders-7", [Operation.insert("a", {}), Operation.merge("r", merged)]))


@pytest.mark.parametrize(
    "name",
    [
        "",
        "with space",
        "with-hyphen",
        "9lives",
        "odata.etag",
        "a.b",
        "x" * 256,
        "PartitionKey",
        "RowKey",
        "Timestamp",
    ],
)
def test_a_name_that_no_property_can_have_is_refused(run, table, refuses, name):
    with refuses(ValueError, match="property name"):
        run(table.transact("orders-7", [Operation.insert("r", {name: 1})]))
