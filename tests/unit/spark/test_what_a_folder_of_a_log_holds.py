"""A log's folder is looked through: its format, whether Spark would look everywhere, and what it passes over."""

from pathlib import Path

import pytest

from runtime.errors import LogError
from runtime.spark.logs.finding import Entry, find_files


class Disk:
    """Lists folders of this machine."""

    def roots(self, path):
        return [_entry(Path(path))]

    def entries(self, folder):
        return map(_entry, sorted(Path(folder.url).iterdir()))

    def is_parquet(self, file):
        return Path(file.url).read_bytes().startswith(b"PAR1")


def _entry(path):
    return Entry(str(path), path.is_dir())


@pytest.fixture
def found(tmp_path):
    """Make files, and look at the folder or file that holds them."""

    def look(*names, at="", format_=None, text="{}"):
        for name in names:
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
        return find_files(Disk(), [str(tmp_path / at)], format_)

    return look


@pytest.mark.parametrize(
    ("names", "format_"),
    [
        (["a.jsonl", "b.json", "c.ndjson"], "json"),
        (["a.jsonl.gz"], "json"),
        (["2026/01/a.JSONL"], "json"),
        (["part-0.snappy.parquet", "no-suffix"], "parquet"),
        (["part-0"], "parquet"),
        (["log.jsonl/part-0.txt"], "json"),
    ],
)
def test_the_format_is_what_the_names_say(found, names, format_):
    at = "log.jsonl" if names[0].startswith("log.jsonl") else ""
    assert found(*names, at=at).format == format_


@pytest.mark.parametrize(
    ("names", "is_nested"),
    [
        (["a.parquet"], False),
        (["dt=1/a.parquet", "dt=2/b.parquet"], False),
        (["dt=1/a.parquet", "b.parquet"], True),
        (["2026/a.parquet"], True),
        (["2026/dt=1/a.parquet"], True),
        (["dt=1/a.jsonl"], True),
    ],
)
def test_folders_beside_those_of_partitions_must_be_looked_into(found, names, is_nested):
    assert found(*names).is_nested is is_nested


def test_what_spark_passes_over_is_told_but_for_what_it_writes_itself(found):
    assert found("a.jsonl", "_SUCCESS", "_committed_12", ".a.jsonl.crc").skipped is None
    assert found("b/_c.jsonl").skipped == "1 file or folder whose name begins with _ or . (b/_c.jsonl)"
    assert found(".d", "_e/f.jsonl", "_g").skipped == (
        "4 files and folders whose names begin with _ or . (.d, _e, _g, ...)"
    )


@pytest.mark.parametrize(
    ("names", "options", "sentence"),
    [
        (
            ["log.csv"],
            {"at": "log.csv"},
            "has a .csv file .log.csv.: a log is Parquet or JSON lines.* say --format",
        ),
        (["log.txt.gz"], {}, "has a .txt file .log.txt.gz.: .* --format json"),
        (["a.jsonl", "b/c.parquet"], {}, "has JSON lines .a.jsonl. and Parquet .c.parquet.: give each"),
        (["a"], {"text": "PAR1", "format_": "json"}, "a is Parquet: leave out --format"),
        (["_delta_log/0.json", "a.parquet"], {}, "is a Delta table: .* give run_batch the DataFrame"),
        (
            ["_a.jsonl"],
            {"at": "_a.jsonl"},
            "Spark reads no file whose name begins with _ or .: rename _a.jsonl",
        ),
        (
            ["_a.jsonl"],
            {},
            "holds no parquet files. Spark passes over 1 file or folder whose name begins with",
        ),
    ],
)
def test_what_is_no_log(found, names, options, sentence):
    with pytest.raises(LogError, match=sentence):
        found(*names, **options)


def test_a_csv_may_be_read_as_what_format_says(found):
    assert found("log.csv", format_="json").format == "json"
