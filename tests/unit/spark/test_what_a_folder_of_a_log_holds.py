"""A log's folder is looked through: its format, whether Spark would look everywhere, and what it passes over."""

import contextlib
import gzip
import json
import os
import socket
from types import SimpleNamespace
from typing import Any

import pytest

from runtime.errors import LogError
from runtime.spark.logs.finding import find_files
from runtime.spark.logs.listing import SessionListing


class Session:
    """A session of this machine; it reads only what its reader is said to find."""

    def __init__(self, *files: str) -> None:
        self.conf = SimpleNamespace(get={"spark.master": "local[2]"}.get)
        rows = [{"path": file} for file in files]
        self.read = self
        self.select = lambda _: SimpleNamespace(collect=lambda: rows)
        self.format = self.option = self.load = lambda *_: self


def listing(*files: str) -> SessionListing:
    session: Any = Session(*files)
    return SessionListing(session)


@pytest.fixture
def found(tmp_path):
    """Make files, and look at the folder or file that holds them."""

    def look(*names, at="", format_=None, text=None):
        for name in names:
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            is_json = ".json" in name.lower() or name.endswith((".ndjson", ".csv"))
            (tmp_path / name).write_text(text or ("{}" if is_json else "PAR1"))
        return find_files(listing(), [str(tmp_path / at)], format_)

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


def make_pipe(path):
    os.mkfifo(path)


def make_socket(path):
    with socket.socket(socket.AF_UNIX) as opened, contextlib.chdir(path.parent):
        opened.bind(path.name)  # which is short


ODD = {
    "a pipe": (make_pipe, "is a pipe, a socket or a device"),
    "a socket": (make_socket, "is a pipe, a socket or a device"),
    "a device": (lambda path: path.symlink_to("/dev/zero"), "is a pipe, a socket or a device"),
    "a link to nothing": (lambda path: path.symlink_to("nowhere"), "is a link to what is not there"),
    "a link to itself": (lambda path: path.symlink_to(path), "is a link to what is not there"),
    "a link to the folder": (
        lambda path: path.symlink_to(path.parent),
        "is a link to a folder that it is in",
    ),
    "a link to a folder above": (lambda path: path.symlink_to("/"), "is a link to a folder that it is in"),
}


@pytest.mark.parametrize("what", ODD)
@pytest.mark.parametrize("where", ["b.jsonl", "2026/b.jsonl"])
def test_what_spark_would_hang_at_is_told(tmp_path, what, where):
    make, sentence = ODD[what]
    (tmp_path / where).parent.mkdir(exist_ok=True)
    (tmp_path / "a.jsonl").write_text("{}")
    make(tmp_path / where)

    with pytest.raises(LogError, match=f"{where} {sentence}"):
        find_files(listing(), [str(tmp_path)])
    if not what.startswith("a link"):
        with pytest.raises(LogError, match=f"{where} {sentence}"):
            find_files(listing(), [str(tmp_path / where)])
    (tmp_path / where).rename(tmp_path / ".hidden")
    assert find_files(listing(), [str(tmp_path)]).format == "json"


def test_links_to_files_and_folders_elsewhere_are_followed(tmp_path):
    log, elsewhere = tmp_path / "log", tmp_path / "elsewhere"
    log.mkdir(), elsewhere.mkdir()
    (elsewhere / "a.jsonl").write_text("{}")
    (log / "file.jsonl").symlink_to(elsewhere / "a.jsonl")
    (log / "folder").symlink_to(elsewhere)

    assert len(find_files(listing(), [str(log)]).files) == 2


MESSAGE = {"message_id": "a", "type": "T", "body": {"text": "]"}}
ARRAY = (
    "is one JSON array, and a log has one object on each line: write it anew, for example with jq -c '.[]' "
)
INDENTED = (
    "has objects of several lines, and a log has one on each line: write it anew, for example with jq -c . "
)


@pytest.mark.parametrize(
    ("data", "format_", "sentence"),
    [
        (json.dumps([MESSAGE]), "json", ARRAY),
        (json.dumps([MESSAGE, MESSAGE], indent=2), "json", ARRAY),
        ("\ufeff" + json.dumps([MESSAGE]), "json", ARRAY),
        ("\ufeff\n" + json.dumps(MESSAGE, indent=2), "json", INDENTED),
        ("[" + ",\n".join([json.dumps(MESSAGE)] * 3) + "]\n", "json", ARRAY),
        ("[" + ",\n".join([json.dumps(MESSAGE)] * 2000) + "]\n", "json", ARRAY),
        (json.dumps(MESSAGE, indent=2), "json", INDENTED),
        ("\n".join([json.dumps(MESSAGE, indent=2)] * 2), "json", INDENTED),
        (json.dumps(MESSAGE).encode("utf-16"), "json", "is UTF-16: write it as UTF-8."),
        (gzip.compress(b"{}", mtime=0), "json", "is compressed by gzip: give it a name that ends in .gz."),
        (b"PK\x03\x04", "json", "or a workbook of Excel: write its rows as JSON lines."),
        ("\n \n", "json", "holds no messages: its file is empty."),
        (b"", "parquet", "is empty, and so no Parquet."),
        (json.dumps(MESSAGE), "parquet", "is no Parquet. If it holds JSON lines, as it seems, say --format json."),
    ],
)  # fmt: skip
def test_a_file_that_begins_as_no_log_does(tmp_path, data, format_, sentence):
    file = tmp_path / "the log"
    file.write_bytes(data if isinstance(data, bytes) else data.encode())

    with pytest.raises(LogError) as raised:
        find_files(listing(), [str(file)], format_)

    said = str(raised.value)
    assert said.partition("jq")[0].endswith(sentence.partition("jq")[0])
    assert ("jq" in sentence) == said.endswith(f"'{file}' > lines.jsonl")


def test_a_packed_file_is_looked_into(tmp_path):
    file = tmp_path / "log.json.gz"
    file.write_bytes(gzip.compress(json.dumps([MESSAGE]).encode()))

    with pytest.raises(LogError, match=r"with gunzip -c .*/log.json.gz | jq -c '.\[\]' > lines.jsonl"):
        find_files(listing(), [str(file)])


@pytest.mark.parametrize("first", ["[", "[{}]", '{\n"', "[]", "2026-01-01 INFO", "{", '[{"message_id": 1},'])
def test_a_line_that_is_no_message_hides_none_of_the_others(tmp_path, first):
    file = tmp_path / "log.jsonl"
    file.write_text(f"{first}\n{json.dumps(MESSAGE)}\n")

    assert find_files(listing(), [str(file)]).format == "json"


def test_a_csv_may_be_read_as_what_format_says(found):
    assert found("log.csv", format_="json").format == "json"


def test_a_pattern_may_have_alternatives(tmp_path):
    for name in ("a1.jsonl", "a2.jsonl", "b1.jsonl", "c1.jsonl"):
        (tmp_path / name).write_text("{}")
    found = listing().roots(f"{tmp_path}/{{a,b}}[1-2].*")
    assert [entry.name for entry in found] == ["a1.jsonl", "a2.jsonl", "b1.jsonl"]


def test_what_is_not_on_the_disks_of_this_machine_is_no_log(tmp_path):
    with pytest.raises(LogError, match="There is no log at"):
        listing().roots(str(tmp_path / "nowhere"))


@pytest.mark.parametrize(
    ("files", "format_", "is_nested"),
    [
        (["box:/logs/a.jsonl"], "json", False),
        (["box:/logs/2026/a.jsonl", "box:/logs/b.jsonl"], "json", True),
        (["box:/logs/dt=1/a.parquet", "box:/logs/dt=2/b.parquet"], "parquet", False),
        (["box:/logs/dt=1/a.parquet", "box:/logs/b.parquet"], "parquet", True),
    ],
)
def test_where_python_sees_nothing_spark_says_what_there_is(files, format_, is_nested):
    found = find_files(listing(*files), ["box://shelf/logs"])
    assert (found.format, found.is_nested) == (format_, is_nested)


def test_a_url_may_be_of_one_file_or_a_pattern():
    assert find_files(listing("box:/logs/a.jsonl"), ["box://shelf/logs/a.jsonl"]).format == "json"
    assert not find_files(listing("box:/logs/a.pq", "box:/logs/b.pq"), ["box://shelf/logs/*"]).is_nested
