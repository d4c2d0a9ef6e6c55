"""A log that is none ends the command, a line of 45 MB does not, and a small log costs Java little."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from samples.shooting_range.log import generate
from tests.integration.cli.folder import SHORT_LIVED_JAVA, Folder, deposit, write_lines


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


@pytest.mark.thorough
def test_a_line_of_45_mb(tmp_path: Path):
    folder = Folder.make(tmp_path)
    huge = deposit(2, "a1", 1) | {"body": "x" * 45 * 10**6}
    write_lines(folder.path / "log.jsonl", [deposit(1, "a1", 1), huge, deposit(3, "a1", 1)])

    done = folder.consistent(
        *("run", "--app", "bank:app", "--messages", "log.jsonl", "--store", "sqlite:///store.db"),
        *("--table", "bank", "--out", "out", "--master", "local[2]", "--json"),
    )

    assert done.returncode == 0, done.stderr
    ends = {(row["status"], row["reason"]): row["count"] for row in json.loads(done.stdout)["outcomes"]}
    assert ends == {("processed", None): 2, ("dead_letter", "too_large"): 1}


_INITIALISED = re.compile(r"\d+ Initializing '([\w/$]+)'")


@pytest.mark.thorough
def test_small_letters_do_not_make_java_look_at_each_character_there_is(tmp_path: Path):
    # Given a Java that writes down which classes it initialises
    folder = Folder(tmp_path)
    pq.write_table(pa.Table.from_pylist(list(generate(1, 4))), tmp_path / "games.parquet")
    java = f"{SHORT_LIVED_JAVA} -Xlog:class+init=info:file={tmp_path}/classes-%p.txt"

    # When a batch is run over messages with UUIDs, which have one spelling then
    done = folder.consistent(
        *("run", "--app", "samples.shooting_range:app", "--messages", "games.parquet", "--out", "out"),
        *("--store", "sqlite:///store.db", "--table", "games", "--master", "local[2]"),
        java=java,
    )
    assert done.returncode == 0, done.stderr

    # Then what ICU needs for them, which is a second of work, was none of them
    told = "".join(path.read_text() for path in tmp_path.glob("classes-*.txt"))
    classes = set(_INITIALISED.findall(told))
    assert "org/apache/spark/unsafe/types/UTF8String" in classes
    assert "org/apache/spark/sql/catalyst/util/CollationAwareUTF8String" not in classes
