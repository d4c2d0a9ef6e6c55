"""What a session is, is asked without its JVM: how many cores, and which machine."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import PySparkException

from runtime.errors import UsageError
from runtime.spark.session import connect_session, cores_of, master_of, may_be_local
from runtime.spark.streaming.query import run_stream
from runtime.spark.worker.connection import check_reach
from samples.shooting_range import app

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


@pytest.mark.parametrize(
    ("settings", "cores"),
    [
        ({"spark_master": "local"}, 1),
        ({"spark_master": "local[3]"}, 3),
        ({"spark_master": "local[3,4]"}, 3),
        ({"spark_master": "local[3]", "spark_default_parallelism": "7"}, 7),
    ],
)
def test_settings_say_how_many_tasks_there_are(settings, cores):
    session: Any = Session(**settings)
    assert (cores_of(session), session.asked) == (cores, [])


def test_of_a_cluster_a_plan_says_it():
    session: Any = Session(spark_master="spark://host:7077")
    assert (cores_of(session), len(session.asked)) == (12, 1)


def test_a_part_of_the_machine_is_what_its_container_may_use(tmp_path, monkeypatch):
    from runtime.spark import session as kinds

    (tmp_path / "cpu.max").write_text("50000 100000\n")
    monkeypatch.setattr(kinds, "_QUOTA", tmp_path / "cpu.max")
    session: Any = Session(spark_master="local[*,4]")
    assert cores_of(session) == 1


def test_a_server_of_another_machine_does_not_see_the_files_of_this_one():
    assert master_of(of_connect("localhost", spark_master="local[2]")) == "local[2]"
    assert master_of(of_connect("far.away", spark_master="local[2]")) == "sc://far.away"
    store = SimpleNamespace(stores=[SimpleNamespace(scope="machine")])
    with pytest.raises(UsageError, match=r"the workers of sc://far\.away may run on others"):
        check_reach(store, of_connect("far.away", spark_master="local[2]"))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("place", "may_be"),
    [
        ("local[2]", True),
        ("sc://localhost:15002", True),
        ("sc://127.0.0.1/;token=x", True),
        ("sc://far.away:15002", False),
        ("spark://localhost:7077", False),
    ],
)
def test_what_may_work_on_this_machine(place, may_be):
    assert may_be_local(place) is may_be


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


def test_a_stream_is_refused_where_its_micro_batches_would_run_elsewhere(tmp_path):
    frame: Any = SimpleNamespace(sparkSession=of_connect("localhost"), isStreaming=True)
    place: Any = {"store": f"sqlite:///{tmp_path}/store.db", "table": "games", "out": str(tmp_path / "out")}
    with pytest.raises(UsageError, match="Spark Connect would run them on its server"):
        run_stream(frame, app, query="q", checkpoint=str(tmp_path / "checkpoint"), **place)
    assert list(tmp_path.iterdir()) == []
