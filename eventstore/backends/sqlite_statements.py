"""The SQL of a table. Each text is made once, so that SQLite's Python module finds it in its cache.

Column order matters: `large` stands last, so that reading the columns before it does not read its pages.
"""

from __future__ import annotations

from eventstore.port import PAGE_SIZE

MAKE_BARRIER = (
    "CREATE TABLE IF NOT EXISTS eventstore_barrier (id INTEGER PRIMARY KEY, commits INTEGER NOT NULL)"
)
BARRIER = (
    "INSERT INTO eventstore_barrier (id, commits) VALUES (1, 1) "
    "ON CONFLICT (id) DO UPDATE SET commits = commits + 1"
)

BETWEEN_KEYS = "\t"
"""Stands between a partition key and a row key; within a stored key it is escaped."""


_ALONG_BYTES = 64 * 2**10
"""Up to here the large part of a first row is read along with the small one."""


class Statements:
    """The SQL for one table of the store.

    Tables that were made before rows had a time get the column when they are opened (`add_times`).
    """

    def __init__(self, name: str) -> None:
        keys, rows = f'"{name}_keys"', f'"{name}_rows"'
        joined = f"FROM {keys} AS k CROSS JOIN {rows} AS r ON r.id = k.id"
        this_id = f"(SELECT id FROM {keys} WHERE partition = ? AND row = ?)"
        in_range = "WHERE k.partition = ? AND k.row >= ? AND k.row <= ? ORDER BY k.row LIMIT"
        in_partitions = "WHERE k.row = ? AND k.partition >= ? AND k.partition <= ? ORDER BY k.partition LIMIT"
        from_place = "WHERE k.partition >= ? AND k.partition <= ? AND (k.partition, k.row) >= (?, ?)"
        one_more = PAGE_SIZE + 1
        in_order = f"{from_place} ORDER BY k.partition, k.row LIMIT {one_more}"
        both_keys = f"k.partition || '{BETWEEN_KEYS}' || k.row"

        self.rows_table = f"{name}_rows"
        key_columns = "partition TEXT NOT NULL, row TEXT NOT NULL, id INTEGER NOT NULL"
        row_columns = (
            "id INTEGER PRIMARY KEY, etag INTEGER NOT NULL, time INTEGER, small BLOB NOT NULL, large BLOB"
        )
        make_keys = (
            f"CREATE TABLE IF NOT EXISTS {keys} ({key_columns}, PRIMARY KEY (partition, row)) WITHOUT ROWID"
        )
        self.make = (MAKE_BARRIER, make_keys, f"CREATE TABLE IF NOT EXISTS {rows} ({row_columns})")
        self.add_times = f"ALTER TABLE {rows} ADD COLUMN time INTEGER"
        self.get = (
            f"SELECT k.row, r.etag, r.time, r.small, r.large {joined} WHERE k.partition = ? AND k.row = ?"
        )
        self.query = f"SELECT k.row, r.etag, r.time, r.small, r.large {joined} {in_range} {one_more}"
        self.project = f"SELECT k.row, r.etag, r.time, r.small, r.id {joined} {in_range} {one_more}"
        large_of_first = f"CASE WHEN k.row = ? AND length(r.large) <= {_ALONG_BYTES} THEN r.large END"
        self.project_first = (
            f"SELECT k.row, r.etag, r.time, r.small, {large_of_first} {joined} {in_range} {one_more}"
        )
        self.scan = (
            f"SELECT k.partition, r.etag, r.time, r.small, r.large {joined} {in_partitions} {one_more}"
        )
        self.project_scan = (
            f"SELECT k.partition, r.etag, r.time, r.small, r.id {joined} {in_partitions} {one_more}"
        )
        self.scan_all = f"SELECT {both_keys}, r.etag, r.time, r.small, r.large {joined} {in_order}"
        self.project_scan_all = f"SELECT {both_keys}, r.etag, r.time, r.small, r.id {joined} {in_order}"
        self.last_partition = f"SELECT max(partition) FROM {keys}"

        self.insert_row = f"INSERT INTO {rows} (etag, time, small, large) VALUES (?, ?, ?, ?)"
        self.delete_row = f"DELETE FROM {rows} WHERE id = ?"
        self.insert_key = f"INSERT INTO {keys} (partition, row, id) VALUES (?, ?, ?)"
        self.update = f"UPDATE {rows} SET etag = ?, time = ?, small = ?, large = ? WHERE id = {this_id}"
        self.update_if = f"{self.update} AND etag = ?"
        self.delete_key = f"DELETE FROM {keys} WHERE partition = ? AND row = ?"
        self.delete = f"DELETE FROM {rows} WHERE id = {this_id}"
        self.delete_if = f"{self.delete} AND etag = ?"
