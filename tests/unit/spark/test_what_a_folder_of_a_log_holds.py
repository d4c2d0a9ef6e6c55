"""The files of a log on this machine: their format, what Spark is to look into, and what it passes over."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from runtime.errors import LogError
from runtime.spark.logs.read import LogFiles, _find_with_spark, find_on_disk, is_on_disk


@pytest.fixture
def found(tmp_path):
    """Make files, and look at the folder or file that holds them."""

    def look(*names: str, at: str = "", format_: str | None = None, text: str | None = None) -> LogFiles:
        for name in names:
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            is_json = ".json" in name.lower() or name.endswith((".ndjson", ".csv"))
            (tmp_path / name).write_text(text or ("{}" if is_json else "PAR1"))
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
def test_the_format_is_what_the_names_say(found, names, at, format_):
    assert found(*names, at=at).format == format_


def test_a_file_may_be_read_as_what_format_says(found):
    assert found("log.csv", format_="json").format == "json"


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
        ([], {"at": "nowhere"}, "There is no log at"),
        (["log.csv"], {"at": "log.csv", "text": "a,b"}, "is no Parquet"),
        (["a.jsonl", "b/c.parquet"], {}, "has JSON lines and Parquet"),
        (["a.jsonl"], {"format_": "parquet"}, "is no Parquet.* --format json"),
        (["a"], {"format_": "json"}, "is Parquet: leave out --format"),
        (["a.jsonl", "b.jsonl"], {"text": "PAR1"}, "is Parquet: leave out --format"),
        (["_delta_log/0.json", "a.parquet"], {}, "is a Delta table"),
        (["_a.jsonl"], {"at": "_a.jsonl"}, "holds no json files. Spark passes over 1 file"),
        (["_a.jsonl"], {}, "holds no parquet files. Spark passes over 1 file"),
        (["_a/b.jsonl"], {"at": "_a"}, "holds no parquet files. Spark passes over 1 file"),
    ],
)
def test_what_is_no_log(found, names, options, sentence):
    with pytest.raises(LogError, match=sentence):
        found(*names, **options)


def test_empty_files_hold_no_messages(tmp_path):
    (tmp_path / "log.jsonl").touch()
    with pytest.raises(LogError, match="holds no messages"):
        find_on_disk([str(tmp_path)])


def test_links_to_files_and_folders_elsewhere_are_followed(tmp_path):
    log, elsewhere = tmp_path / "log", tmp_path / "elsewhere"
    log.mkdir(), elsewhere.mkdir()
    (elsewhere / "a.jsonl").write_text("{}")
    (log / "file.jsonl").symlink_to(elsewhere / "a.jsonl")
    (log / "folder").symlink_to(elsewhere)

    assert len(find_on_disk([str(log)]).files) == 2


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
    reader = SimpleNamespace(load=lambda _: SimpleNamespace(inputFiles=lambda: files))
    reader.format = reader.option = lambda *_: reader
    session: Any = SimpleNamespace(read=reader, conf=SimpleNamespace(get={"spark.master": "local"}.get))

    found = _find_with_spark(session, [path], None)

    assert (found.format, found.is_partitioned, found.is_on_disk) == (format_, is_partitioned, False)
    assert found.files == files
    assert Path(found.paths[0]).name == path.rpartition("/")[2]
