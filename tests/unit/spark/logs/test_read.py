"""Files of a log on this machine: which they are, and what names them."""

import gzip
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.errors import LogError
from runtime.spark.logs import read as reading
from runtime.spark.logs.read import Input, LogFiles, _digest, _find_with_spark, find_on_disk, is_on_disk


@pytest.fixture
def found(tmp_path):
    """Make files, and look at the folder or file that holds them."""

    def look(
        *names: str, at: str = "", format_: str | None = None, text: str | None = None, empty: bool = False
    ) -> LogFiles:
        for name in names:
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            is_json = ".json" in name.lower() or name.endswith((".ndjson", ".csv"))
            content = b"" if empty else (text or ("{}" if is_json else "PAR1")).encode()
            (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        return find_on_disk([str(tmp_path / at)], format_)

    return look


@pytest.mark.parametrize(
    ("names", "at", "format_"),
    [
        (["a.jsonl", "b.json", "c.ndjson"], "", "json"),
        (["2026/01/a.JSONL"], "", "json"),
        (["part-0.snappy.parquet", "no-suffix"], "", "parquet"),
        (["part-0"], "", "parquet"),
        (["log.jsonl/part-0.json.gz"], "log.jsonl", "json"),
    ],
)
def test_the_format_is_what_the_names_say_or_what_is_given(found, names, at, format_):
    assert found(*names, at=at).format == format_
    assert found("other/log.csv", at="other", format_="json").format == "json"


@pytest.mark.parametrize("kind", ["link to nothing", "loop", "pipe", "no UTF-8"])
def test_what_cannot_be_read_is_refused(tmp_path, kind):
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "a.jsonl").write_text("{}")
    odd = tmp_path / "log" / "b.jsonl"
    match kind:
        case "link to nothing":
            odd.symlink_to(tmp_path / "nowhere")
        case "loop":
            (tmp_path / "log" / "deep").mkdir()
            (tmp_path / "log" / "deep" / "again").symlink_to(tmp_path / "log")
        case "pipe":
            os.mkfifo(odd)
        case _:
            Path(os.fsdecode(os.fsencode(tmp_path) + b"/log/b\xff.jsonl")).write_text("{}")

    with pytest.raises(LogError):
        find_on_disk([str(tmp_path / "log")])


def test_links_to_files_and_to_other_folders_are_followed(tmp_path):
    log, other, shorter = tmp_path / "log", tmp_path / "other", tmp_path / "lo"
    for folder in (
        log,
        other,
        shorter,
    ):  # the name of one begins like that of the log, and it is not above it
        folder.mkdir()
    (other / "a.jsonl").write_text("{}")
    (shorter / "b.jsonl").write_text("{}")
    (log / "file.jsonl").symlink_to(other / "a.jsonl")
    (log / "linked").symlink_to(other)
    (log / "shorter").symlink_to(shorter)

    assert len(find_on_disk([str(log)]).files) == 3


@pytest.mark.parametrize(
    ("names", "is_partitioned"),
    [
        (["a.parquet"], False),
        (["dt=1/a.parquet", "dt=2/b.parquet"], True),
        (["dt=1/a.parquet", "b.parquet"], False),
        (["2026/dt=1/a.parquet"], False),
        (["dt=1/a.jsonl"], False),
    ],
)
def test_folders_are_columns_where_all_files_of_parquet_are_in_such_ones(found, names, is_partitioned):
    assert found(*names).is_partitioned is is_partitioned


def test_what_spark_passes_over_is_told_but_for_what_it_writes_itself(found):
    assert found("a.jsonl", "_SUCCESS", "_committed_12", ".a.jsonl.crc").skipped is None
    assert found("b/_c.jsonl").skipped == "1 file or folder whose name begins with _ or . (b/_c.jsonl)"
    assert found(".d", "_e/f.jsonl", "_g").skipped == (
        "4 files and folders whose names begin with _ or . (.d, _e, _g, ...)"
    )


@pytest.mark.parametrize(
    ("names", "options", "sentence"),
    [
        ([], {"at": "nowhere"}, r"There is no log at .*nowhere\.$"),
        (["log.csv"], {"at": "log.csv", "text": "a,b"}, "is not Parquet"),
        (["a.jsonl", "b/app.py"], {}, "has JSON lines and other files"),
        (["a.csv"], {"format_": "parquet", "text": "a,b"}, "is not Parquet"),
        (["a.jsonl", "b/c.parquet"], {}, "has JSON lines and other files"),
        (["a.jsonl"], {"format_": "parquet"}, "is not Parquet.* --format json"),
        (["a"], {"format_": "json"}, "is Parquet: omit --format"),
        (["a.jsonl", "b.jsonl"], {"text": "PAR1"}, "is Parquet: omit --format"),
        (["a.jsonl"], {"empty": True}, "holds no messages"),
        (["_delta_log/0.json", "a.parquet"], {}, "is a Delta table"),
        (["_a.jsonl"], {"at": "_a.jsonl"}, "holds no json files. Spark ignores 1 file"),
        (["_a.jsonl"], {}, "holds no parquet files. Spark ignores 1 file"),
        (["_a/b.jsonl"], {"at": "_a"}, "holds no parquet files. Spark ignores 1 file"),
    ],
)
def test_what_is_no_log(found, names, options, sentence):
    with pytest.raises(LogError, match=sentence):
        found(*names, **options)


@pytest.mark.parametrize(
    ("path", "master", "expected"),
    [
        ("log.jsonl", "local[2]", True),
        ("file:/logs", "local", True),
        ("logs/*.jsonl", "local", False),
        ("s3a://bucket/logs", "local", False),
        ("logs", "yarn", False),
        ("logs", "local-cluster[1,1,1024]", False),
    ],
)
def test_only_one_file_or_folder_of_this_machine_is_looked_at_here(path, master, expected, monkeypatch):
    monkeypatch.delenv("HADOOP_CONF_DIR", raising=False)
    assert is_on_disk(path, master) is expected
    monkeypatch.setenv("HADOOP_CONF_DIR", "/etc/hadoop")
    assert not is_on_disk(path, master)


@pytest.mark.parametrize(
    ("path", "files", "format_", "is_partitioned"),
    [
        ("box://shelf/logs/a.jsonl", ["box://shelf/logs/a.jsonl"], "json", False),
        ("box://shelf/logs", ["box://shelf/logs/2026/a.jsonl", "box://shelf/logs/b.jsonl"], "json", False),
        ("box://shelf/logs", ["box://shelf/logs/dt=1/a.pq", "box://shelf/logs/dt=2/b.pq"], "parquet", True),
        ("box://shelf/logs", ["box://shelf/logs/dt=1/a.pq", "box://shelf/logs/b.pq"], "parquet", False),
        ("box://shelf/logs/*", ["box://shelf/logs/a.pq", "box://shelf/logs/b.pq"], "parquet", False),
    ],
)
def test_elsewhere_spark_says_what_there_is(path, files, format_, is_partitioned):
    reader = SimpleNamespace(
        load=lambda paths: SimpleNamespace(inputFiles=lambda: files if isinstance(paths, list) else [])
    )
    reader.format = reader.option = lambda *_: reader
    session: Any = SimpleNamespace(read=reader, conf=SimpleNamespace(get={"spark.master": "local"}.get))

    found = _find_with_spark(session, [path], None)

    assert (found.format, found.is_partitioned, found.is_on_disk) == (format_, is_partitioned, False)
    assert found.files == files
    assert Path(found.paths[0]).name == path.rpartition("/")[2]


LINE = b'{"message_id":"a","type":"FireAt","body":"{}"}\n'


def read(path: Path) -> Input | None:
    return _digest(find_on_disk([str(path)]))


def written(path: Path, data: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def parquet(path: Path, rows: int = 10, **options) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"message_id": [f"message {row}" for row in range(rows)]}), path, **options)
    return path


def test_names_places_and_times_of_files_are_of_no_account(tmp_path):
    # Given a log, and its files again, in another folder under other names, which come in another order
    for name, copy, data in [("a", "z", LINE), ("b", "y", 2 * LINE), ("c/d", "x", 3 * LINE)]:
        written(tmp_path / "log" / f"{name}.jsonl", data)
        os.utime(written(tmp_path / "copied" / f"{copy}.jsonl", data), (0, 0))

    # Then they are the same
    assert read(tmp_path / "log") == read(tmp_path / "copied")


@pytest.mark.parametrize(
    "files",
    [
        {"a.jsonl": LINE, "b.jsonl": LINE.replace(b'"a"', b'"b"')},
        {"a.jsonl": LINE},
        {"a.jsonl": LINE, "b.jsonl": LINE, "c.jsonl": LINE},
        {"a.jsonl": LINE + LINE},
    ],
    ids=["a message changed", "one less", "one more", "split otherwise"],
)
def test_other_bytes_are_another_log(tmp_path, files):
    for name in ("a.jsonl", "b.jsonl"):
        written(tmp_path / "log" / name, LINE)
    for name, data in files.items():
        written(tmp_path / "other" / name, data)
    assert read(tmp_path / "log") != read(tmp_path / "other")


def test_folders_that_are_columns_count_and_others_do_not(tmp_path):
    def of(folder: str) -> Input | None:
        parquet(tmp_path / folder / "part-0.parquet")
        return read(tmp_path / folder.partition("/")[0])

    assert of("1/type=Start") == of("2/type=Start") != of("3/type=Fire")
    for place in ("lines/type=Start", "copied/type=Fire", "flat"):
        written(tmp_path / place / "part-0.jsonl", LINE)
    assert read(tmp_path / "lines") == read(tmp_path / "copied") == read(tmp_path / "flat")


@given(
    lines=st.lists(st.sampled_from([b"{}", b"x", b"", b" ", b"\t", b" \t ", b"\xff"])),
    ends=st.data(),
    chunk=st.integers(1, 5),
    mark=st.sampled_from([b"", b"\xef\xbb\xbf"]),
)
def test_lines_that_are_not_blank_are_counted_wherever_a_file_is_cut(
    tmp_path_factory, lines, ends, chunk, mark
):
    # Given lines that end in all ways, the last one perhaps in none, in a file that is read by a few bytes
    all_ends = [ends.draw(st.sampled_from([b"\n", b"\r\n", b"\r"])) for _ in lines]
    if all_ends and ends.draw(st.booleans()):
        all_ends[-1] = b""
    data = mark + b"".join(line + end for line, end in zip(lines, all_ends, strict=True))
    file = written(tmp_path_factory.mktemp("log") / "log.jsonl", data + b"\n{}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "_CHUNK", chunk)
        found = read(file)

    # Then none is counted twice or passed over
    last = lines[-1].strip(b" \t") if lines else b""
    assert found is not None
    assert found.messages == sum(bool(line.strip(b" \t")) for line in lines[:-1]) + bool(last) + 1


def test_rows_of_all_row_groups_are_counted(tmp_path):
    parquet(tmp_path / "log" / "a.parquet", rows=10_000, row_group_size=999)
    parquet(tmp_path / "log" / "b.parquet", rows=0)
    found = read(tmp_path / "log")
    assert found is not None
    assert found.messages == 10_000


def damaged_page(folder: Path) -> Path:
    file = parquet(folder / "log.parquet", write_page_checksum=True, compression="none", use_dictionary=False)
    return written(file, file.read_bytes().replace(b"message 7", b"message 8"))


def cut_short(folder: Path) -> Path:
    file = parquet(folder / "log.parquet")
    return written(file, file.read_bytes()[:-1])


def compressed(folder: Path) -> Path:
    return written(folder / "log.jsonl.gz", gzip.compress(LINE))


@pytest.mark.parametrize("make", [damaged_page, cut_short, compressed])
def test_what_is_damaged_or_compressed_is_left_to_spark(tmp_path, make):
    assert read(make(tmp_path)) is None


def test_a_log_that_is_too_much_for_one_process_is_left_to_spark(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "MOST_BYTES", 2 * len(LINE))
    written(tmp_path / "log" / "a.jsonl", 2 * LINE)
    assert read(tmp_path / "log") is not None
    written(tmp_path / "log" / "c.jsonl", LINE)
    assert read(tmp_path / "log") is None
