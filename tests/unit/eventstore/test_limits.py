from itertools import repeat

from hypothesis import given, settings
from hypothesis import strategies as st

from eventstore import Int64, Operation, Value
from eventstore.backends.azure import transaction
from eventstore.keys import escape
from eventstore.limits import (
    AROUND_ALL_BYTES,
    MAX_OPERATIONS,
    MAX_TRANSACTION_BYTES,
    SURELY_SMALL_BYTES,
    prepare,
    prepare_row,
    sent_bytes,
)
from tests.support.payloads import KEYS, ROWS

LONGEST_ENDPOINT = "https://" + "a" * 24 + ".table.cosmosdb.azure.com"
LONGEST_URL = f"{LONGEST_ENDPOINT}/{'t' * 63}"


def operations_on(row_key, row):
    return st.sampled_from(
        [
            Operation.insert(row_key, row),
            Operation.replace(row_key, row, "etag"),
            Operation.merge(row_key, row),
            Operation.insert_or_replace(row_key, row),
            Operation.insert_or_merge(row_key, row),
            Operation.delete(row_key, "etag"),
        ]
    )


@settings(deadline=None)
@given(partition_key=KEYS, rows=st.dictionaries(KEYS, ROWS, min_size=1, max_size=15), data=st.data())
def test_a_transaction_to_the_longest_address_has_at_most_the_size_that_is_counted(partition_key, rows, data):
    operations = [data.draw(operations_on(key, row)) for key, row in rows.items()]
    prepared = prepare(partition_key, operations)

    keys = [escape(key) for key in rows]
    body = transaction(LONGEST_URL, escape(partition_key), keys, operations, prepared, is_cosmos=True)

    counted = AROUND_ALL_BYTES + sum(map(sent_bytes, repeat(partition_key), operations, prepared))
    values = sum(len(row) for row in prepared)
    assert len(body) <= counted <= 2 * len(body) + 100 * values + 500 * len(operations)


@given(partition_key=KEYS, rows=st.dictionaries(KEYS, ROWS, min_size=1, max_size=5))
def test_a_transaction_that_is_not_counted_cannot_be_too_large(partition_key, rows):
    operations = [Operation.merge(key, row, "etag") for key, row in rows.items()]
    prepared = prepare(partition_key, operations)
    total = sum(prepare_row(row)[1] + 4 * (len(partition_key) + len(key)) for key, row in rows.items())

    keys = [escape(key) for key in rows]
    body = transaction(LONGEST_URL, escape(partition_key), keys, operations, prepared, is_cosmos=True)

    assert len(body) <= 6 * total + 1000 * len(rows)
    assert 6 * SURELY_SMALL_BYTES + 1000 * MAX_OPERATIONS <= MAX_TRANSACTION_BYTES


def test_the_size_of_a_row_is_counted_as_documented():
    row: dict[str, Value] = {
        "Text": "four",
        "Flag": True,
        "Number": 1,
        "Big": Int64(1),
        "Real": 1.0,
        "Bytes": b"four",
    }

    _, size = prepare_row(row)

    names = sum(8 + 2 * len(name) for name in row)
    assert size == 4 + names + (2 * 4 + 4) + 1 + 4 + 8 + 8 + (4 + 4)
