"""What Java does for its first batch, and for none after it, counts where there is only one."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from samples.shooting_range.log import generate
from tests.integration.cli.folder import SHORT_LIVED_JAVA, Folder

_INITIALISED = re.compile(r"\d+ Initializing '([\w/$]+)'")


@pytest.mark.thorough
def test_small_letters_do_not_make_java_look_at_each_character_there_is(tmp_path: Path):
    # Given a Java that writes down which classes it initialises
    folder = Folder(tmp_path)
    parquet.write_table(pa.Table.from_pylist(list(generate(1, 4))), tmp_path / "games.parquet")
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
