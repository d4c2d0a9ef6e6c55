"""Handlers are written, tested and run with little installed, and what is missing is named with its extra.

The other packages are installed here, and hidden; `test_an_installation.py` installs for real.
"""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.packaging.building import run_with
from tests.packaging.programs import GAME

STORE = ["--store", "sqlite:///games.db", "--table", "games"]
APP = ["--app", "samples.shooting_range:app"]
LOG = ["--messages", "log.jsonl"]


def told(installed: Sequence[str], folder: Path, program: str) -> str:
    """Return what a program printed, one of the functions of `tests.packaging.programs`."""
    done = run_with(installed, f"from tests.packaging.programs import *\n{program}", folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


def commands(installed: Sequence[str], folder: Path, *given: Sequence[str]) -> list[list[object]]:
    """Return exit code, output and errors of commands, one after another in one process."""
    found: list[list[object]] = json.loads(told(installed, folder, f"run_commands({json.dumps(given)!r})"))
    return found


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a folder with a store of one game, and an empty log, once for all tests."""
    made = tmp_path_factory.mktemp("played")
    told([], made, "consume('sqlite:///games.db')")
    (made / "log.jsonl").touch()
    return made


@pytest.fixture
def folder(played: Path, tmp_path: Path) -> Path:
    return shutil.copytree(played, tmp_path, dirs_exist_ok=True)


BATCHES = "from runtime.spark import run_batch"
TABLE_SERVICE = "from eventstore import connect; connect('azurite')"
EXPLORER = (
    "from runtime.explore import Explorer; from runtime.outcome_files import OutcomeFiles; import pyarrow, uvicorn; "
    "Explorer('sqlite:///games.db', 'games')"
)
DETERMINISM = (
    "from handlers.testing import check_determinism; from samples.shooting_range import app; "
    "check_determinism(app, examples=3)"
)


@pytest.mark.parametrize(
    ("program", "what", "extra", "is_enough"),
    [
        (BATCHES, "MissingExtraError: Batches on Spark need pyspark", "spark", False),
        (TABLE_SERVICE, "StoreUrlError: A table service needs aiohttp", "azure", False),
        pytest.param(DETERMINISM, "SpecError: check_determinism needs Hypothesis", "testing", True),
        (EXPLORER, "MissingExtraError: The explorer needs anyio", "sql", True),
    ],
)
def test_what_is_missing_is_named_with_its_extra(folder, program, what, extra, is_enough):
    done = run_with([], program, folder)

    assert done.returncode == 1
    assert done.stderr.endswith(f".errors.{what}: pip install 'consistent-messaging[{extra}]'.\n")
    if is_enough:
        done = run_with([extra], program, folder)
        assert done.returncode == 0, done.stderr


def test_the_command_line_without_its_packages_is_one_sentence(tmp_path):
    done = run_with([], "from runtime.cli import main; main(['--version'])", tmp_path)

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "Error: The command line needs typer: pip install 'consistent-messaging[spark]', or "
        "'consistent-messaging[sql]' for the commands without Spark.\n"
    )


def test_commands_that_look_into_a_store_or_into_source_need_no_spark(folder):
    ended = commands(
        ["sql"],
        folder,
        ["--version"],
        ["run", "--help"],
        ["lint", "samples.shooting_range:app"],
        ["show", *STORE],
        ["show", *STORE, "ShootingRange", GAME],
        ["batches", *STORE],
        ["show", "--stats", *STORE],
        ["truncate", *STORE, *APP, "--algorithm", "outbox", "--older-than", "7d", "--dry-run"],
    )

    assert [(code, err) for code, _, err in ended] == [(0, "")] * len(ended)


@pytest.mark.thorough
def test_sql_needs_its_extra_and_no_spark(folder):
    query = "select count(*), max(now) > timestamptz '2020-01-01' as late from versions"
    asked = ["sql", query, *STORE, "--csv"]

    (answered,), (refused,) = commands(["sql"], folder, asked), commands(["spark"], folder, asked)

    assert answered == [0, "count_star(),late\n2,true\n", ""]
    sentence = "Error: SQL needs duckdb: pip install 'consistent-messaging[sql]'.\n"
    assert refused == [1, "", sentence]


def test_commands_that_need_spark_say_so_in_one_sentence(folder):
    ended = commands(
        ["sql", "azure"],
        folder,
        ["demo"],
        ["demo", "--log-only", "other.jsonl"],
        ["run", *STORE, *APP, *LOG, "--out", "outcomes"],
        ["verify", *STORE, *APP, *LOG],
        ["truncate", *STORE, "--older-than", "7d", "--yes"],
        ["run", *STORE, *APP, "--algorithm", "outbox", "--unfinished", "1h", "--out", "outcomes"],
        ["tokens", *STORE, *APP, *LOG, "--out", "tokens"],
    )

    sentence = "Error: Batches on Spark need pyspark: pip install 'consistent-messaging[spark]'.\n"
    assert ended == [[1, "", sentence]] * len(ended)


@pytest.mark.thorough
def test_a_command_on_a_table_service_names_the_extra_too(tmp_path):
    ended = commands(["sql"], tmp_path, ["show", "--store", "azurite", "--table", "games"])

    sentence = "Error: A table service needs aiohttp: pip install 'consistent-messaging[azure]'.\n"
    assert ended == [[2, "", sentence]]
