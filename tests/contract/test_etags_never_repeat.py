from __future__ import annotations

from eventstore import Operation


def test_each_write_of_a_row_gives_it_a_new_etag(run, table):
    seen = []
    for number in range(30):
        seen += run(table.transact("p", [Operation.insert_or_replace("r", {"V": number % 2})]))

    assert len(set(seen)) == len(seen)
    assert run(table.get("p", "r")).etag == seen[-1]


def test_a_row_that_is_deleted_and_made_anew_gets_a_new_etag(run, table):
    seen = []
    for _ in range(20):
        seen += run(table.transact("p", [Operation.insert("r", {"V": 1})]))
        run(table.transact("p", [Operation.delete("r", seen[-1])]))

    assert len(set(seen)) == len(seen)


def test_reading_gives_the_etag_that_writing_gave(run, table):
    written = run(table.transact("p", [Operation.insert(key, {"V": 1}) for key in "abc"]))

    assert tuple(row.etag for row in run(table.query("p", "a", "c")).rows) == written
    assert tuple(row.etag for row in run(table.query("p", "a", "c", select=["V"])).rows) == written
    assert tuple(run(table.get("p", key)).etag for key in "abc") == written
