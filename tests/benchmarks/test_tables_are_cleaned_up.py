"""The benchmark of cleaning up: it runs as its command says, in a process of its own, and checks what was cut."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks.cleanup import __main__ as command


@pytest.mark.thorough
def test_it_truncates_each_stream_of_its_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    monkeypatch.setitem(command.SIZES, "tiny", (("sqlite", 20), ("azurite", 10)))

    arguments = ["--size", "tiny", "--only", "sqlite", "--results", str(tmp_path)]
    done = CliRunner().invoke(command.cli, arguments)

    assert done.exit_code == 0, done.output
    (file,) = tmp_path.glob("*-cleanup-tiny.json")
    (table,) = json.loads(file.read_text())["tables"]
    assert (table["store"], table["streams"], table["rows"]) == ("sqlite", 20, 80)
    assert table["requests"] > 80


def test_what_it_does_not_have_is_named():
    done = CliRunner().invoke(command.cli, ["--only", "nothing"])

    assert done.exit_code == 2
    assert "There are sqlite and azurite." in done.output
