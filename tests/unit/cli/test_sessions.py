"""Spark for small logs, and a machine without Java."""

import json

import pytest

from runtime.cli import sessions
from runtime.cli.checks import check_log
from runtime.cli.sessions import SHORT_LIVED, SMALL_BYTES, settings_for
from runtime.errors import UsageError
from runtime.spark import java, start
from tests.unit.cli.stores import ON_STORE

LINE = json.dumps({"message_id": "1", "type": "Bought", "body": {}}) + "\n"
APP = ["--app", "samples.shooting_range:app"]


@pytest.fixture(autouse=True)
def _no_choice(monkeypatch):
    for name in sessions._CHOSEN_BY_USER:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def log(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "log" / "day=1").mkdir(parents=True)
    (tmp_path / "log" / "day=1" / "one.jsonl").write_text(LINE)
    (tmp_path / "log" / "two.jsonl").write_text(2 * LINE)
    (tmp_path / "log" / "_hidden.jsonl").write_text(LINE)
    return "log"


def test_a_small_log_has_short_lived_java_unless_the_user_configures_it(monkeypatch):
    assert settings_for(SMALL_BYTES) == SHORT_LIVED
    assert settings_for(SMALL_BYTES + 1) == settings_for(None) == {}

    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-XX:+UseZGC")
    assert settings_for(1) == {}


@pytest.mark.parametrize(
    ("path", "master", "size"),
    [
        ("log", "local[2]", 3 * len(LINE)),
        ("log/t*.jsonl", "local[2]", None),
        ("s3a://shelf/log", "local[2]", None),
        ("log", "spark://host:7077", None),
    ],
)
def test_the_size_of_a_log_is_known_for_local_files(log, path, master, size):
    assert check_log(path, master, "json") == size


@pytest.mark.parametrize("command", [["run", "--out", "out"], ["verify"], ["tokens", "--out", "out"]])
@pytest.mark.parametrize("limit", [SMALL_BYTES, 1])
def test_commands_that_read_a_log_start_spark_for_its_size(
    consistent, store, log, monkeypatch, command, limit
):
    asked = []

    def build(*_, settings, **__):
        asked.append(settings)
        raise UsageError("Spark is not needed here.")

    monkeypatch.setattr(sessions, "SMALL_BYTES", limit)
    monkeypatch.setattr(start, "build_session", build)

    consistent(*command, *APP, "--messages", log, *ON_STORE)

    assert asked == [SHORT_LIVED if limit == SMALL_BYTES else {}]


@pytest.mark.parametrize("arguments", [["demo"], ["truncate", "--older-than", "7d", "--yes", *ON_STORE]])
def test_a_machine_without_java_is_told_what_to_install(consistent, store, monkeypatch, arguments):
    monkeypatch.setattr(java, "find_java", lambda: None)

    said = consistent(*arguments)

    assert (said.code, said.err) == (1, f"Error: {java.JAVA_MISSING}\n")
