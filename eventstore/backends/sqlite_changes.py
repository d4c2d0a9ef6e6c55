"""Transactions of a table, checked beforehand, and carried out operation by operation inside one of SQLite's."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from time import time_ns

from eventstore.backends.packing import unpack
from eventstore.backends.sqlite_file import SqliteConnection
from eventstore.backends.sqlite_statements import Statements
from eventstore.errors import RowChangedError, RowExistsError, RowNotFoundError
from eventstore.keys import escape
from eventstore.limits import merge, prepare
from eventstore.port import ANY_ETAG, Operation, TransactionResult, Value, Verb

_LARGEST = 2**63 - 1


@dataclass(slots=True)
class CheckedTransaction:
    """A transaction that is within all limits, with its keys and properties as they are stored."""

    operations: Sequence[Operation]
    partition: str
    rows: list[str]
    properties: list[dict[str, Value]]

    @classmethod
    def of(cls, partition_key: str, operations: Sequence[Operation]) -> CheckedTransaction:
        """Check a transaction. Raises what `transact` raises before any I/O."""
        properties = prepare(partition_key, operations)
        partition = escape(partition_key)
        return cls(operations, partition, [escape(operation.row_key) for operation in operations], properties)

    def carry_out(self, connection: SqliteConnection, sql: Statements) -> tuple[str, ...]:
        """Carry out all operations, and return the new ETags. Raises the `RowError` of the first that is refused."""
        changes = Changes(connection, sql, self.partition)
        rows, properties = self.rows, self.properties
        return tuple(
            [
                changes.carry_out(index, operation, rows[index], properties[index])
                for index, operation in enumerate(self.operations)
            ]
        )

    def attempt(self, connection: SqliteConnection, sql: Statements) -> TransactionResult:
        """Do the same. When it is refused, undo it alone, and return the error.

        Several operations are in a savepoint; one alone has changed nothing when it is refused.
        """
        if len(self.operations) == 1:
            return self._result(connection, sql)
        execute = connection.statement.execute
        execute("SAVEPOINT one")
        result = self._result(connection, sql)
        if isinstance(result, Exception):
            execute("ROLLBACK TO one")
        execute("RELEASE one")
        return result

    def _result(self, connection: SqliteConnection, sql: Statements) -> TransactionResult:
        try:
            return self.carry_out(connection, sql)
        except sqlite3.Error:
            raise
        except Exception as error:  # noqa: BLE001 - any error of this transaction is its result
            return error


class Changes:
    """Carries out operations on one partition; all rows written get the same new ETag, and the same time."""

    __slots__ = ("_connection", "_etag", "_partition", "_sql", "_statement", "_time")

    def __init__(self, connection: SqliteConnection, sql: Statements, partition: str) -> None:
        self._connection = connection
        self._statement = connection.statement
        self._sql = sql
        self._partition = partition
        self._etag = connection.new_etag()
        self._time = time_ns() // 1000

    def carry_out(self, index: int, operation: Operation, row: str, properties: dict[str, Value]) -> str:
        """Change the row as the operation says, and return its new ETag.

        Raises the `RowError` that tells why the operation is refused; then nothing has changed.
        """
        verb = operation.verb
        if verb is Verb.INSERT:
            self._insert(index, operation, row, properties)
        elif verb is Verb.REPLACE:
            if not self._update(operation.etag, row, properties):
                raise self._refusal(index, operation, row)
        elif verb is Verb.DELETE:
            if not self._delete(operation.etag, row):
                raise self._refusal(index, operation, row)
            return ""
        elif verb is Verb.INSERT_OR_REPLACE:
            if not self._update(ANY_ETAG, row, properties):
                self._insert(index, operation, row, properties)
        else:
            self._merge(index, operation, row, properties)
        return str(self._etag)

    def _insert(self, index: int, operation: Operation, row: str, properties: dict[str, Value]) -> None:
        small, large = self._connection.packer.pack(properties)
        execute = self._statement.execute
        row_id = execute(self._sql.insert_row, (self._etag, self._time, small, large)).lastrowid
        try:
            execute(self._sql.insert_key, (self._partition, row, row_id))
        except sqlite3.IntegrityError:
            execute(self._sql.delete_row, (row_id,))
            raise RowExistsError(operation.row_key, index) from None

    def _update(self, etag: str | None, row: str, properties: dict[str, Value]) -> bool:
        small, large = self._connection.packer.pack(properties)
        values = (self._etag, self._time, small, large, self._partition, row)
        if etag == ANY_ETAG:
            return self._statement.execute(self._sql.update, values).rowcount > 0
        return self._statement.execute(self._sql.update_if, (*values, _number(etag))).rowcount > 0

    def _delete(self, etag: str | None, row: str) -> bool:
        key = (self._partition, row)
        if etag == ANY_ETAG:
            deleted = self._statement.execute(self._sql.delete, key).rowcount
        else:
            deleted = self._statement.execute(self._sql.delete_if, (*key, _number(etag))).rowcount
        if not deleted:
            return False
        self._statement.execute(self._sql.delete_key, key)
        return True

    def _merge(self, index: int, operation: Operation, row: str, properties: dict[str, Value]) -> None:
        found = self._statement.execute(self._sql.get, (self._partition, row)).fetchone()
        if found is None:
            if operation.verb is Verb.MERGE:
                raise RowNotFoundError(operation.row_key, index)
            self._insert(index, operation, row, properties)
            return
        _, etag, _, small, large = found
        if operation.verb is Verb.MERGE and operation.etag not in (ANY_ETAG, str(etag)):
            raise RowChangedError(operation.row_key, index)
        self._update(ANY_ETAG, row, merge(unpack(small, large), properties))

    def _refusal(self, index: int, operation: Operation, row: str) -> RowChangedError | RowNotFoundError:
        found = self._statement.execute(self._sql.get, (self._partition, row)).fetchone()
        if found is None:
            return RowNotFoundError(operation.row_key, index)
        return RowChangedError(operation.row_key, index)


def _number(etag: str | None) -> int:
    """Return the number that an ETag stands for; -1, which no row has, when it stands for none."""
    if etag is None or not etag.isdecimal() or len(etag) > len(str(_LARGEST)):
        return -1
    number = int(etag)
    # Zeros before a number, or digits of another script, make another text.
    return number if number <= _LARGEST and str(number) == etag else -1
