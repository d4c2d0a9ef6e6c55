"""Several transactions in one commit: each is carried out or refused by itself, as if it came alone."""

from __future__ import annotations

from typing import Any

import pytest

from eventstore import (
    InvalidKeyError,
    Operation,
    PayloadTooLargeError,
    RowChangedError,
    RowExistsError,
    RowNotFoundError,
)
from eventstore.port import CommitsTogether
from tests.support.names import new_name


@pytest.fixture(params=["memory", "sqlite"])
def store_url(request, tmp_path):
    return f"memory:{new_name()}" if request.param == "memory" else f"sqlite:///{tmp_path}/store.db"


def insert(*row_keys: str, **properties: Any) -> list[Operation]:
    return [Operation.insert(key, properties) for key in row_keys]


def test_a_table_of_this_machine_can_do_it(table):
    assert isinstance(table, CommitsTogether)


def test_each_gets_its_etags(table, run, contents):
    first, second = run(table.transact_each([("p", insert("a", "b")), ("q", insert("a"))]))

    assert first == tuple(row.etag for row in contents("p"))
    assert second == tuple(row.etag for row in contents("q"))
    assert set(first).isdisjoint(second)


def test_none_is_no_commit(table, run):
    assert run(table.transact_each([])) == []


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


def test_a_key_that_cannot_be_is_the_error_of_its_transaction_alone(table, run, contents):
    first, second = run(table.transact_each([("p" * 513, insert("a")), ("q", insert("a"))]))

    assert type(first) is InvalidKeyError
    assert second == tuple(row.etag for row in contents("q"))


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
