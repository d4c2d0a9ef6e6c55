"""Files of outcomes: one for each attempt at a task, with a row that says what it holds."""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from runtime.errors import BatchFailedError
from runtime.messages.outcome import Status
from runtime.spark.worker import outcomes as parts
from runtime.spark.worker.outcomes import ARROW_OUTCOME, OutcomeFile, PartJob, totals
from tests.support.outcome_rows import batch, outcome, output, wide_batch

TYPES = ("Heard", "Seen")
MIB = 2**20

outcomes = st.builds(
    outcome,
    st.sampled_from([status.value for status in Status]),
    st.lists(st.builds(output, st.sampled_from([*TYPES, "Felt"])), max_size=3),
)


def write(folder: Path, batches: list[pa.RecordBatch]) -> list[OutcomeFile]:
    rows = [row for given in PartJob(iter, str(folder), TYPES).run(batches) for row in given.to_pylist()]
    return [OutcomeFile(**{**row, "statuses": dict(row["statuses"])}) for row in rows]


@given(st.lists(st.lists(outcomes, max_size=5), max_size=5))
def test_the_row_says_what_the_file_holds(tmp_path_factory: pytest.TempPathFactory, groups):
    folder = tmp_path_factory.mktemp("staged")
    rows = [row for group in groups for row in group]

    written = write(folder, [batch(group) for group in groups])

    # A file with all outcomes, or none when there are none
    assert [path.name for path in folder.iterdir()] == [part.name for part in written]
    found = [parquet.read_table(folder / part.name, schema=ARROW_OUTCOME) for part in written]
    assert [row for table in found for row in table.to_pylist()] == batch(rows).to_pylist()
    assert [part.size for part in written] == [path.stat().st_size for path in folder.iterdir()]

    # ... the counts of which are those of its rows
    types = [each["type"] for row in rows for each in row["outputs"]]
    expected = Counter(row["status"] for row in rows) + Counter(outputs=len(types))
    assert totals(written) == (expected | Counter(), len([type_ for type_ in types if type_ in TYPES]))


def test_no_more_is_held_than_two_row_groups_are_large(tmp_path):
    # Given outcomes of 96 MiB, in batches of up to 8
    sizes = [8, 1, 7, 3, 8, 5] * 3
    before = pa.total_allocated_bytes()
    peak = 0

    def fold(_: object) -> Iterator[pa.RecordBatch]:
        nonlocal peak
        for size in sizes:
            outcomes = wide_batch(size * 16, MIB // 16)
            peak = max(peak, pa.total_allocated_bytes() - before)
            yield outcomes
            del outcomes

    # When they are written
    (row,) = PartJob(fold, str(tmp_path), TYPES).run([])

    # Then memory is bounded, and so are the row groups
    file = parquet.ParquetFile(tmp_path / row.column("name")[0].as_py())
    assert file.metadata.num_rows == sum(sizes) * 16
    groups = [file.metadata.row_group(number) for number in range(file.num_row_groups)]
    assert max(group.num_rows for group in groups) <= 16 * 16
    assert 13 * MIB <= peak <= 17 * MIB


def test_small_batches_become_one_row_group(tmp_path, monkeypatch):
    monkeypatch.setattr(parts, "MAX_PART_ROWS", 10)
    (part,) = write(tmp_path, [batch([outcome()] * 3)] * 7)

    metadata = parquet.read_metadata(tmp_path / part.name)
    assert [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)] == [12, 9]


def test_pages_have_checksums(tmp_path):
    (part,) = write(tmp_path, [batch([outcome() | {"message_id": "a-known-text"}] * 9)])
    file = tmp_path / part.name

    content = file.read_bytes()
    at = content.index(b"a-known-text")
    file.write_bytes(content[:at] + b"X" + content[at + 1 :])

    with pytest.raises(OSError, match="CRC"):
        parquet.read_table(file, page_checksum_verification=True)


@pytest.mark.parametrize("after", [0, 1])
def test_a_fold_that_fails_leaves_no_file_and_no_row(tmp_path, after):
    def fold(_: object) -> Iterator[pa.RecordBatch]:
        yield from [batch([outcome()])] * after
        raise ValueError("it cannot go on")

    with pytest.raises(ValueError, match="cannot go on"):
        list(PartJob(fold, str(tmp_path), TYPES).run([]))
    assert not list(tmp_path.iterdir())


def delete_it(folder: Path) -> None:
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()


@pytest.mark.parametrize("when", ["before the first outcomes", "while they are written"])
def test_a_folder_that_is_gone_is_not_brought_back(tmp_path, when):
    staged = tmp_path / "staged"
    staged.mkdir()
    steps: list[Callable[[Path], None]] = [delete_it, lambda _: None]

    def fold(_: object) -> Iterator[pa.RecordBatch]:
        for step in steps if when == "before the first outcomes" else reversed(steps):
            step(staged)
            yield batch([outcome()])

    with pytest.raises(BatchFailedError, match="staged"):
        list(PartJob(fold, str(staged), TYPES).run([]))
    assert not staged.exists()
