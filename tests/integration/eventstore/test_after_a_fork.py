"""Parent and child after a fork: each has connections of its own."""

from __future__ import annotations

import pytest

PROGRAM = """
import os, sys
from eventstore import Operation, connect, drive

store = connect("sqlite:///" + sys.argv[1])
table = drive(store.table("games"))

def insert(who, number):
    drive(table.transact("p", [Operation.insert(f"{who}-{number}", {"V": number})]))

insert("parent", 0)
inherited = store.connection()
pid = os.fork()
who = "parent" if pid else "child"
for number in range(1, 30):
    insert(who, number)
if not pid:
    assert store.connection() is not inherited
    assert inherited.execute is not None and inherited.pid == os.getppid()
    drive(store.close())
    %(end)s
assert store.connection() is inherited
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
insert("parent", 30)
keys = [row.row_key for row in drive(table.query("p", "", "z")).rows]
assert len(keys) == 60, len(keys)
assert inherited.execute("PRAGMA integrity_check").fetchone() == ("ok",)
drive(store.close())
store = connect("sqlite:///" + sys.argv[1])
assert len(drive(drive(store.table("games")).query("p", "", "z")).rows) == 60
drive(store.close())
"""


NEVER_USES_IT = """
import os, sys, gc
from eventstore import Operation, connect, drive
from eventstore.backends.sqlite import SqliteConnection

store = connect("sqlite:///" + sys.argv[1])
table = drive(store.table("games"))
drive(table.transact("p", [Operation.insert("r", {})]))
SqliteConnection.__del__ = lambda connection: os.write(2, b"closed")
if os.fork() == 0:
    del store, table
    gc.collect()
    sys.exit(0)
assert os.waitstatus_to_exitcode(os.wait()[1]) == 0
drive(table.transact("p", [Operation.insert("s", {})]))
os._exit(0)
"""


@pytest.mark.parametrize("end", ["os._exit(0)", "sys.exit(0)"], ids=["at once", "after cleaning up"])
def test_parent_and_child_both_write_and_no_row_is_lost(start, path, end):
    assert start(PROGRAM % {"end": end}, path).end() == []


def test_a_child_that_never_uses_the_store_does_not_close_it(start, path):
    assert start(NEVER_USES_IT, path).end() == []
