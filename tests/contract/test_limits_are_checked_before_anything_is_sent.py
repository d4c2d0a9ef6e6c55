from __future__ import annotations

import pytest

from eventstore import Operation, PayloadTooLargeError

KIB = 1024


def row(**sizes):
    return {name: b"x" * size for name, size in sizes.items()}


def wide_row(count, size):
    return {f"P{number}": b"x" * size for number in range(count)}


AT_THE_LIMIT = {
    "a binary property": [Operation.insert("r", {"P": b"x" * 64 * KIB})],
    "a string property": [Operation.insert("r", {"P": "x" * 32 * KIB})],
    "a string of characters of two units": [Operation.insert("r", {"P": "😀" * 16 * KIB})],
    "the number of properties": [Operation.insert("r", wide_row(252, 1))],
    "a row": [Operation.insert("r", wide_row(16, 64 * KIB - 30))],
    "the number of operations": [Operation.insert(f"r{n}", {"P": n}) for n in range(100)],
    "a transaction": [Operation.insert(f"r{n}", wide_row(3, 59 * KIB)) for n in range(17)],
    "a property name": [Operation.insert("r", {"P" * 255: 1})],
}
OVER_THE_LIMIT = {
    "a binary property": [Operation.insert("r", {"P": b"x" * (64 * KIB + 1)})],
    "a string property": [Operation.insert("r", {"P": "x" * (32 * KIB + 1)})],
    "a string of characters of two units": [Operation.insert("r", {"P": "😀" * (16 * KIB + 1)})],
    "the number of properties": [Operation.insert("r", wide_row(253, 1))],
    "a row": [Operation.insert("r", wide_row(17, 62 * KIB))],
    "the number of operations": [Operation.insert(f"r{n}", {"P": n}) for n in range(101)],
    "a transaction": [Operation.insert(f"r{n}", wide_row(15, 60 * KIB)) for n in range(4)],
    "a transaction of text": [
        Operation.insert(f"r{n}", {f"P{p}": "\x01" * 32 * KIB for p in range(12)}) for n in range(2)
    ],
}


@pytest.mark.parametrize("operations", AT_THE_LIMIT.values(), ids=AT_THE_LIMIT)
def test_what_is_at_a_limit_is_taken(run, table, contents, operations):
    run(table.transact("orders-7", operations))

    assert len(contents()) == len(operations)


@pytest.mark.parametrize("operations", OVER_THE_LIMIT.values(), ids=OVER_THE_LIMIT)
def test_what_is_over_a_limit_is_refused(run, table, refuses, operations):
    with refuses(PayloadTooLargeError):
        run(table.transact("orders-7", operations))


def test_an_oversize_row_after_others_undoes_nothing_because_nothing_was_sent(run, table, refuses):
    with refuses(PayloadTooLargeError, match="'P' has 65,537 bytes"):
        run(table.transact("orders-7", [Operation.insert("a", {}), *OVER_THE_LIMIT["a binary property"]]))


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
