"""Sessions: of which kind they are, what they are started with, and what their failures say."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import PySparkException

from runtime.errors import UsageError
from runtime.spark.session import (
    AT_START,
    cores_of,
    explain,
    is_local,
    job_settings,
    keep_job_settings,
    master_of,
    may_be_local,
    ship,
)
from runtime.spark.start import DEFAULT_MASTER, _settings, connect_session, with_retries
from runtime.spark.worker.connection import check_scope

PLAN = "== Physical Plan ==\n*(1) Range (0, 1, step=1, splits=12)\n"


class Session:
    """A session of this process, with settings, on a cluster with twelve cores."""

    def __init__(self, **settings: str) -> None:
        found = {name.replace("_", "."): value for name, value in settings.items()}
        self.conf = SimpleNamespace(get=found.get)
        self.asked: list[str] = []

    def sql(self, query: str) -> Any:
        self.asked.append(query)
        return SimpleNamespace(first=lambda: (PLAN,))


def of_connect(host: str, **settings: str) -> Any:
    made = type("SparkSession", (Session,), {"__module__": "pyspark.sql.connect.session"})(**settings)
    made.client = SimpleNamespace(host=host)
    return made


def test_settings_say_how_many_tasks_there_are_and_of_a_cluster_and_of_all_cores_a_plan():
    for settings, cores, asked in [
        ({"spark_master": "local"}, 1, 0),
        ({"spark_master": "local[3]"}, 3, 0),
        ({"spark_master": "local[3,4]"}, 3, 0),
        ({"spark_master": "local[3]", "spark_default_parallelism": "7"}, 7, 0),
        ({"spark_master": "spark://host:7077"}, 12, 1),
        ({"spark_master": "local[*,4]"}, 12, 1),
    ]:
        session: Any = Session(**settings)
        assert (cores_of(session), len(session.asked)) == (cores, asked)


def test_a_server_of_another_machine_does_not_see_the_files_of_this_one():
    assert master_of(of_connect("localhost", spark_master="local[2]")) == "local[2]"
    assert master_of(of_connect("far.away", spark_master="local[2]")) == "sc://far.away"
    with pytest.raises(UsageError, match=r"workers of sc://far\.away may run on others"):
        check_scope("machine", "sc://far.away")


def test_what_works_on_this_machine_and_what_may():
    for place, may_be, certainly in [
        ("local", True, True),
        ("local[2]", True, True),
        ("local[*,4]", True, True),
        ("local-cluster[2,1,1024]", False, False),
        ("spark://localhost:7077", False, False),
        ("sc://localhost:15002", True, False),
        ("sc://127.0.0.1/;token=x", True, False),
        ("sc://far.away:15002", False, False),
    ]:
        assert (may_be_local(place), is_local(place)) == (may_be, certainly)


def test_a_platform_that_does_not_tell_its_settings():
    def refuse(*_: object) -> None:
        raise PySparkException("CONFIG_NOT_AVAILABLE")

    session = of_connect("localhost")
    session.conf = SimpleNamespace(get=refuse)
    assert (master_of(session), cores_of(session)) == ("unknown", 12)


def test_a_server_that_is_not_there_is_told_at_once():
    with pytest.raises(
        UsageError, match=r"There is no Spark Connect at sc://127\.0\.0\.1:1: Connection refused"
    ):
        connect_session("sc://127.0.0.1:1")
    with pytest.raises(UsageError, match="There is no Spark Connect at sc://127"):
        connect_session("sc://127.0.0.1:99999")


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ("local", "local[1,4]"),
        ("local[2]", "local[2,4]"),
        ("local[*]", "local[*,4]"),
        ("local[2,1]", "local[2,1]"),
        (DEFAULT_MASTER, "local[*,4]"),
        ("local-cluster[2,1,1024]", "local-cluster[2,1,1024]"),
        ("spark://somewhere:7077", "spark://somewhere:7077"),
    ],
)
def test_a_local_master_tries_a_failed_task_again(given, used):
    assert with_retries(given) == used


ZONE = "spark.sql.session.timeZone"


def session(settings: dict[str, str]) -> Any:
    conf = SimpleNamespace(
        get=settings.get, set=settings.__setitem__, unset=lambda name: settings.pop(name, None)
    )
    return SimpleNamespace(conf=conf)


def test_the_last_of_several_jobs_gives_the_session_back_whichever_object_it_has_for_it():
    settings = {ZONE: "Asia/Tokyo"}
    first, second = job_settings(session(settings)), job_settings(session(settings))

    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert settings[ZONE] == "UTC"
    second.__exit__(None, None, None)

    assert settings == {ZONE: "Asia/Tokyo"}


def test_a_copy_of_a_session_that_is_made_amid_a_job_gives_nothing_back_for_the_original():
    # Given a query whose session is copied from one on which a job is under way
    original = {ZONE: "Asia/Tokyo"}
    starting = job_settings(session(original))
    starting.__enter__()
    copied = dict(original)

    # When its first micro-batch is still under way as that job ends
    keep_job_settings(session(copied))
    starting.__exit__(None, None, None)

    # Then the original has its own settings again, and those of the query stay
    assert original == {ZONE: "Asia/Tokyo"}
    assert copied == AT_START


TRACE = """An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "fold.py", line 1, in handle
    raise ReplayFailedError(problem)
{raised}

SQLSTATE: 38000"""


@pytest.mark.parametrize(
    ("raised", "told"),
    [
        ("runtime.errors.ReplayFailedError: Message a cannot be replayed.", "Message a cannot be replayed."),
        ("eventstore.errors.StoreUnavailableError: It did not answer", "It did not answer."),
        ("KeyError: 'x'", "A Spark task failed with KeyError: 'x'."),
    ],
)
def test_the_last_error_counts(raised, told):
    assert explain(Exception(TRACE.format(raised=raised)), "Go on.") == f"{told} Go on."


PLANTED = ("socketserver", "json", "queue", "pyarrow", "pandas", "runtime", "eventstore")
_ENVIRONMENT = "spark.executorEnv."


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in PLANTED:
        (tmp_path / f"{name}.py").write_text("raise SystemExit('a planted module was run')")
    (tmp_path / "raffle.py").write_text("FOUND = True")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_worker_of_spark_finds_apps_there_and_nothing_else(folder):
    settings = _settings("local[1]", {})
    given = {
        name.removeprefix(_ENVIRONMENT): value
        for name, value in settings.items()
        if name.startswith(_ENVIRONMENT)
    }
    script = f"import {', '.join(PLANTED)}, raffle; print(raffle.FOUND)"

    done = subprocess.run(
        [sys.executable, "-c", script],
        check=False,
        env={**os.environ, **given},
        cwd=folder,
        text=True,
        capture_output=True,
    )

    assert done.stdout == "True\n", done.stderr
    path = settings[f"{_ENVIRONMENT}PYTHONPATH"].split(os.pathsep)
    assert path.index(str(folder)) == len(path) - 1


@pytest.mark.parametrize(
    ("name", "files", "sent"),
    [
        ("raffle", ["raffle.py", "other.py"], ["raffle.py"]),
        (
            "shop.orders.events",
            ["shop/__init__.py", "shop/orders/events.py", "shop/notes.txt"],
            ["shop/__init__.py", "shop/orders/events.py"],
        ),
        *((name, [], []) for name in ("json", "pydantic", "sys", "nowhere")),  # installed, or of no file
    ],
)
def test_an_app_that_is_not_installed_is_sent_to_workers_as_a_module_or_whole_package(
    tmp_path, monkeypatch, name, files, sent
):
    for file in files:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(f"# {file}")
    top = name.partition(".")[0]
    if files:
        module: Any = ModuleType(top)
        module.__file__ = str(tmp_path / f"{top}.py")
        if (tmp_path / top).is_dir():
            module.__path__ = [str(tmp_path / top)]
        monkeypatch.setitem(sys.modules, top, module)
    archives: dict[str, list[str]] = {}

    def add(path: str, *, pyfile: bool) -> None:
        assert pyfile
        with zipfile.ZipFile(path) as archive:
            archives[path] = archive.namelist()

    spark: Any = SimpleNamespace(addArtifacts=add)
    assert ship(spark, name) is bool(sent)
    assert list(archives.values()) == [sent] * bool(sent)

    if sent:  # other content has another name
        (tmp_path / files[0]).write_text("# changed")
        ship(spark, name)
        ship(spark, name)
        assert len(archives) == 2
