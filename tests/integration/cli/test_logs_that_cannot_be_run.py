"""A log that cannot be read as one ends the command with a sentence."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq

from tests.integration.cli.folder import Folder


def test_a_log_without_a_required_column(workplace):
    Folder.make(workplace.path)
    log = pa.table({"message_id": ["m1"], "type": ["Deposited"]})
    pq.write_table(log, workplace.path / "log.parquet")

    done = workplace.consistent(
        "run", "--app", "bank:app", "--messages", "log.parquet", "--master", "local[2]",
        "--store", "sqlite:///nothing.db", "--table", "bank", "--out", "outcomes",
    )  # fmt: skip

    assert done.returncode == 1
    assert done.stdout == ""
    assert "The log lacks the column body" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
