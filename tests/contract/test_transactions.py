"""A transaction is atomic, alone or committed with others."""

from typing import Any

import pytest

from eventstore import (
    ANY_ETAG,
    InvalidKeyError,
    Operation,
    PayloadTooLargeError,
    RowChangedError,
    RowExistsError,
    RowNotFoundError,
    Verb,
)


@pytest.fixture
def etags(transact):
    operations = [Operation.insert(key, {"V": 1, "Kept": "k"}) for key in ("a", "b", "c")]
    return transact(operations)


def test_all_operations_of_a_transaction_take_effect(transact, etags, contents):
    new = transact(
        [
            Operation.replace("a", {"V": 2}, etags[0]),
            Operation.merge("b", {"V": 2}, etags[1]),
            Operation.delete("c", etags[2]),
            Operation.insert("d", {"V": 2}),
            Operation.insert_or_replace("e", {"V": 2}),
            Operation.insert_or_merge("f", {"V": 2}),
        ]
    )

    rows = {row.row_key: row for row in contents()}
    assert {key: row.properties for key, row in rows.items()} == {
        "a": {"V": 2},
        "b": {"V": 2, "Kept": "k"},
        "d": {"V": 2},
        "e": {"V": 2},
        "f": {"V": 2},
    }
    assert new == (rows["a"].etag, rows["b"].etag, "", rows["d"].etag, rows["e"].etag, rows["f"].etag)


def test_some_verbs_take_a_row_as_it_is(transact, etags, contents):
    transact([Operation.insert_or_replace("a", {"V": 2}), Operation.insert_or_merge("b", {"V": 2})])
    transact([Operation.merge("a", {"V": 3}), Operation.replace("b", {"V": 3}), Operation.delete("c")])
    transact([Operation.merge("a", {"W": 4}), Operation.insert_or_merge("b", {"W": 4})])

    assert [row.properties for row in contents()] == [{"V": 3, "W": 4}, {"V": 3, "W": 4}]


STALE = 'W/"stale"'
REFUSALS = [
    (Operation.insert("a", {}), RowExistsError),
    (Operation.replace("x", {}), RowNotFoundError),
    (Operation.replace("a", {}, STALE), RowChangedError),
    (Operation.merge("x", {}), RowNotFoundError),
    (Operation.merge("a", {}, STALE), RowChangedError),
    (Operation.delete("x"), RowNotFoundError),
    (Operation.delete("a", STALE), RowChangedError),
    (Operation.replace("x", {}, STALE), RowNotFoundError),
    (Operation.delete("x", STALE), RowNotFoundError),
    (Operation.replace("a", {}, "no etag at all"), RowChangedError),
    (Operation.merge("used", {}, "valid once"), RowChangedError),
]


@pytest.mark.parametrize(("operation", "error"), REFUSALS)
@pytest.mark.parametrize("later", [[], [Operation.insert("d", {}), Operation.delete("missing")]])
def test_the_first_operation_that_is_refused_is_named_and_undoes_the_others(
    transact, etags, refuses, operation, error, later
):
    (was,) = transact([Operation.insert("used", {})])
    transact([Operation.replace("used", {"V": 1}, was)])
    if operation.etag == "valid once":
        operation = Operation.merge("used", {}, was)
    others = [
        Operation.insert("new", {"V": 2}),
        Operation.replace("b", {"V": 2}, etags[1]),
        Operation.delete("c", etags[2]),
    ]

    with refuses(error) as raised:
        transact([*others, operation, *later])

    assert (raised.value.row_key, raised.value.index) == (operation.row_key, 3)


@pytest.mark.parametrize(
    ("operations", "told"),
    [
        *([[Operation(verb, "a", {}, etag)], "needs an ETag"]
          for verb in (Verb.REPLACE, Verb.MERGE, Verb.DELETE) for etag in (None, "")),
        *([[Operation(verb, "a", {}, etag)], "takes no ETag"]
          for verb in (Verb.INSERT, Verb.INSERT_OR_MERGE, Verb.INSERT_OR_REPLACE) for etag in ("etag", "")),
        ([Operation.insert("n", {}), Operation.delete("n")], "several operations on the row"),
        ([], "at least one operation"),
    ],
)  # fmt: skip
def test_what_can_be_no_transaction_is_refused(transact, etags, refuses, operations, told):
    with refuses(ValueError, match=told):
        transact(operations)


def test_what_a_caller_gives_is_not_changed_and_not_kept(transact, run, table):
    properties = {"V": 1}
    run(table.transact("p", [Operation.insert("r", properties)]))
    properties["V"] = 2
    run(table.get("p", "r")).properties["V"] = 3

    assert run(table.get("p", "r")).properties == {"V": 1}


# Several transactions in one commit, in the stores of this machine.


of_this_machine = pytest.mark.parametrize("store_url", ["memory", "sqlite"], indirect=True)


def insert(*row_keys: str, **properties: Any) -> list[Operation]:
    return [Operation.insert(key, properties) for key in row_keys]


@of_this_machine
@pytest.mark.parametrize(
    ("refused", "error"),
    [
        ([*insert("new"), Operation.insert("there", {})], RowExistsError),
        ([*insert("new"), Operation.merge("absent", {})], RowNotFoundError),
        ([*insert("new"), Operation.replace("there", {"V": 9}, "7")], RowChangedError),
        ([Operation.delete("other"), Operation.delete("there", "7")], RowChangedError),
        ([*insert("new"), *insert("large", V=b"x" * 70_000)], PayloadTooLargeError),
        ([*insert("new"), Operation.merge("wide", {f"M{n}": n for n in range(200)})], PayloadTooLargeError),
        ([*insert("new"), *insert("new")], ValueError),
        ([*insert("new"), *insert("strange", V=object())], TypeError),
        ([], ValueError),
        ([*insert("new"), *insert("k" * 513)], InvalidKeyError),
    ],
)
def test_one_that_is_refused_changes_nothing_and_the_others_are_carried_out(
    table, run, contents, refused, error
):
    wide = {f"N{number}": number for number in range(200)}
    run(table.transact("q", [*insert("there", "other", V=1), Operation.insert("wide", wide)]))
    before = contents("q")

    first, second, third = run(
        table.transact_each([("p", insert("a")), ("q", refused), ("r", insert("a", "b"))])
    )

    assert type(second) is error
    assert contents("q") == before
    assert first == tuple(row.etag for row in contents("p"))
    assert third == tuple(row.etag for row in contents("r"))


@of_this_machine
def test_of_two_on_one_stream_the_second_is_refused(table, run, contents):
    (etag,) = run(table.transact("p", insert("head", V=0)))

    first, second = run(
        table.transact_each(
            [
                ("p", [Operation.replace("head", {"V": 1}, etag)]),
                ("p", [Operation.insert("a", {}), Operation.replace("head", {"V": 2}, etag)]),
            ]
        )
    )

    assert first == tuple(row.etag for row in contents("p"))
    assert (type(second), second.index, second.row_key) == (RowChangedError, 1, "head")
    assert [row.properties for row in contents("p")] == [{"V": 1}]


@of_this_machine
def test_several_partitions_are_read_with_one_request(table, run):
    for key in ("p", "q", "q/1", "r"):
        run(table.transact(key, insert("a", "b", "c", V=key)))

    found = run(table.query_each(["q/1", "absent", "p", "q", "p"], "b", "c"))

    assert found == [run(table.query(key, "b", "c")).rows for key in ("q/1", "absent", "p", "q", "p")]


@of_this_machine
def test_a_partition_with_too_many_rows_for_a_page_is_not_read_with_others(table, run, monkeypatch):
    monkeypatch.setattr("eventstore.port.PAGE_SIZE", 2)
    monkeypatch.setattr("eventstore.backends.memory.PAGE_SIZE", 2)
    run(table.transact("p", insert("a", "b", "c")))
    run(table.transact("q", insert("a", "b")))

    few, many = run(table.query_each(["q", "p"], "a", "z"))

    assert [row.row_key for row in few] == ["a", "b"]
    assert many is None


@of_this_machine
@pytest.mark.parametrize("refused", [None, "inserted", "replaced", "over a limit"])
def test_single_changes_of_many_partitions_end_as_each_alone(table, run, contents, refused):
    etags = [run(table.transact(f"p{number}", insert("head", V=0)))[0] for number in range(20)]
    transactions = [(f"p{n}", [Operation.replace("head", {"V": 1}, etag)]) for n, etag in enumerate(etags)]
    transactions += [(f"q{number}", insert("head", V=1)) for number in range(20)]
    if refused == "inserted":
        run(table.transact("q7", insert("head", V=9)))
    if refused == "replaced":
        run(table.transact("p7", [Operation.replace("head", {"V": 9}, ANY_ETAG)]))
    if refused == "over a limit":
        transactions[7] = ("p7", insert("large", V=b"x" * 70_000))

    results = run(table.transact_each(transactions))

    errors = {"inserted": RowExistsError, "replaced": RowChangedError, "over a limit": PayloadTooLargeError}
    failed = {} if refused is None else {27 if refused == "inserted" else 7: errors[refused]}
    for number, ((key, _), result) in enumerate(zip(transactions, results, strict=True)):
        (row,) = contents(key)
        if number in failed:
            assert type(result) is failed[number]
            assert row.properties == {"V": 0 if refused == "over a limit" else 9}
        else:
            assert result == (row.etag,)
            assert row.properties == {"V": 1}
