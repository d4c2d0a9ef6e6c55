"""Spark for small logs, and a machine without Java."""

import json

import pytest

from eventstore import connect, drive
from runtime.cli import main
from runtime.cli import sessions as short_lives
from runtime.cli.checks import check_log
from runtime.cli.sessions import SHORT_LIVED, SMALL_BYTES, settings_for
from runtime.errors import UsageError
from runtime.spark import java, start

LINE = json.dumps({"message_id": "1", "type": "Bought", "body": {}}) + "\n"


@pytest.fixture(autouse=True)
def _no_choice(monkeypatch):
    for name in short_lives._CHOSEN_BY_USER:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def log(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "log" / "day=1").mkdir(parents=True)
    (tmp_path / "log" / "day=1" / "one.jsonl").write_text(LINE)
    (tmp_path / "log" / "two.jsonl").write_text(2 * LINE)
    (tmp_path / "log" / "_passed_over.jsonl").write_text(LINE)
    return "log"


def test_up_to_a_limit_and_where_nothing_else_was_said(monkeypatch):
    assert settings_for(SMALL_BYTES) == SHORT_LIVED
    assert settings_for(SMALL_BYTES + 1) == settings_for(None) == {}

    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-XX:+UseZGC")
    assert settings_for(1) == {}


def test_the_size_of_a_log_is_that_of_the_files_that_are_read(log):
    assert check_log(log, "local[2]", "json") == 3 * len(LINE)


@pytest.mark.parametrize("path", ["log/t*.jsonl", "s3a://shelf/log"])
def test_the_size_of_what_spark_is_to_list_is_not_known(log, path):
    assert check_log(path, "local[2]", "json") is None


@pytest.mark.parametrize(("path", "master"), [("s3a://bucket/log", "local[2]"), ("log", "spark://host:7077")])
def test_elsewhere_it_is_not_known(log, path, master):
    assert check_log(path, master, "json") is None


@pytest.mark.parametrize("command", ["run", "verify", "tokens"])
@pytest.mark.parametrize("limit", [SMALL_BYTES, 1])
def test_commands_that_read_a_log_ask_for_it(log, monkeypatch, command, limit):
    asked = []

    def build(*_, settings, **__):
        asked.append(settings)
        raise UsageError("Spark is not needed here.")

    monkeypatch.setattr(short_lives, "SMALL_BYTES", limit)
    monkeypatch.setattr(start, "build_session", build)
    arguments = [*command.split(), "--app", "samples.shooting_range:app", "--messages", log]
    arguments += [] if command == "verify" else ["--out", "out"]
    drive(connect("sqlite:///store.db").table("games"))

    with pytest.raises(SystemExit):
        main([*arguments, "--store", "sqlite:///store.db", "--table", "games"])

    assert asked == [SHORT_LIVED if limit == SMALL_BYTES else {}]


@pytest.mark.parametrize(
    "arguments",
    [
        ["demo"],
        ["truncate", "--older-than", "7d", "--yes", "--store", "sqlite:///store.db", "--table", "games"],
    ],
)
def test_what_to_install_is_said(consistent, store, monkeypatch, arguments):
    monkeypatch.setattr(java, "find_java", lambda: None)

    said = consistent(*arguments)

    assert said.code == 1
    assert said.err == f"Error: {java.JAVA_MISSING}\n"
