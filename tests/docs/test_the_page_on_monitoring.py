"""docs/monitoring.md lists all metrics, its dashboard asks for metrics that exist, and its program runs."""

import asyncio
import json
import logging
import re
import shlex
import urllib.request
from typing import Any

import promql_parser
import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard
from prometheus_client.parser import text_string_to_metric_families

from runtime.serve import Consumer, ServeOptions
from runtime.serve.streams import LOG
from runtime.telemetry import METRICS, Metrics, full_name
from tests.docs.pages import ROOT, text
from tests.docs.pasting import beside_the_project, marked, paste
from tests.unit.runtime.serve.topics import World, line, until

PAGE = "docs/monitoring.md"
DASHBOARD = json.loads((ROOT / "docs" / "assets" / "grafana.json").read_text())
QUERIES = [
    (panel["title"], target["expr"]) for panel in DASHBOARD["panels"] for target in panel.get("targets", ())
]
_ROW = re.compile(r"^\| `(consistent_\w+)` \| (\w+) \|([\w, ]*)\| (.*) \|$", re.MULTILINE)


def test_all_metrics_are_listed():
    listed = [(name, kind, labels.strip(), what) for name, kind, labels, what in _ROW.findall(text(PAGE))]

    known = [
        (full_name(name), each.kind, ", ".join(each.labels), each.help) for name, each in METRICS.items()
    ]
    assert listed == known
    shown = re.findall(r"^# TYPE (\w+) (\w+)$", Metrics().text(), re.MULTILINE)
    assert shown == [(name, kind) for name, kind, *_ in listed]  # by a fresh process


@pytest.fixture(scope="module")
def exported() -> dict[str, set[str]]:
    """Return the labels of each sample in the answer of a consumer's `/metrics`, by its name."""
    world, logged = World(), list[str]()
    world.options = ServeOptions(linger_ms=0, health_port=0)
    world.topic.send(line("m1", "anna"), line("m2", "anna", -1))
    handler = logging.Handler()
    handler.emit = lambda record: logged.append(record.getMessage())  # type: ignore[method-assign]
    LOG.addHandler(handler)
    LOG.setLevel(logging.INFO)

    async def during(consumer: Consumer) -> None:
        await until(lambda: consumer.counts.get("dead_letter") == 1)
        world.topic.lanes["entries/0"].end = lambda: 12
        (url,) = [each.rpartition(" ")[2] for each in logged if "metrics" in each]
        answer = await asyncio.to_thread(lambda: urllib.request.urlopen(f"{url}/metrics").read())
        logged.append(answer.decode())

    world.consume(during)
    LOG.removeHandler(handler)
    return {
        sample.name: set(sample.labels)
        for family in text_string_to_metric_families(logged[-1])
        for sample in family.samples
    }


@pytest.mark.parametrize(("title", "query"), QUERIES)
def test_a_query_of_the_dashboard_is_valid_and_names_what_is_exported(title, query, exported):
    for variable, value in {"$__rate_interval": "1m", "$__range": "1h", "$job": "shots"}.items():
        query = query.replace(variable, value)
    names, labels = set[str](), set[str]()

    def look(part: promql_parser.Expr) -> None:
        if isinstance(part, promql_parser.VectorSelector):
            names.add(part.name or "")
            labels.update(each.name for each in part.matchers.matchers)
        if isinstance(part, promql_parser.AggregateExpr) and part.modifier:
            labels.update(part.modifier.labels)

    promql_parser.walk(promql_parser.parse(query), look)

    (name,) = names
    assert labels <= exported[name] | {"job", "instance"}, title  # which Prometheus adds


def test_grafana_knows_every_field_of_the_dashboard():
    """Grafana itself is in no registry that is used here; these are its own models of a dashboard."""
    register_default_plugins()
    loaded = json.loads(JSONEncoder().encode(Dashboard.from_json(DASHBOARD)))

    assert loaded == merged(loaded, DASHBOARD)


def merged(whole: Any, part: Any) -> Any:
    """Return a document with the values of another one, whose fields it may lack."""
    if isinstance(whole, dict) and isinstance(part, dict):
        return whole | {name: merged(whole.get(name), value) for name, value in part.items()}
    if isinstance(whole, list) and isinstance(part, list) and len(whole) == len(part):
        return [merged(*each) for each in zip(whole, part, strict=True)]
    return part


def test_the_dashboard_shows_every_metric():
    asked = set(re.findall(r"\bconsistent_\w+", " ".join(query for _, query in QUERIES)))

    assert {re.sub("_(sum|count|bucket)$", "", name) for name in asked} == set(map(full_name, METRICS))
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)
    names = {each["name"] for each in DASHBOARD["templating"]["list"]}
    variables = set(re.findall(r"\$\{?(\w+)", json.dumps(DASHBOARD["panels"])))
    assert variables - {"__rate_interval", "__range"} == names
    assert full_name("messages") in DASHBOARD["templating"]["list"][1]["query"]["query"]


def test_its_program_runs(tmp_path):
    (program,) = marked(PAGE, "otel")

    told = paste(f"python -c {shlex.quote(program)}", tmp_path, beside_the_project())

    assert 'consistent_messages_total{handler="ShootingRange",status="processed"} 2' in told
    assert told.count('"name": "process ShootingRange"') == 2
    assert re.search(r"^(Hit|Missed) \{'traceparent': '00-\w{32}-\w{16}-0\d'\}$", told, re.MULTILINE)
