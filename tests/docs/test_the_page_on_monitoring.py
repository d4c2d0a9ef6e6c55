"""docs/monitoring.md lists all metrics, its dashboard asks for metrics that exist, and its program runs."""

import json
import re
import subprocess
import sys

import pytest

from runtime.telemetry import METRICS, Metrics, full_name
from tests.docs.pages import ROOT, text
from tests.docs.pasting import beside_the_project, marked

PAGE = "docs/monitoring.md"
DASHBOARD = json.loads((ROOT / "docs" / "assets" / "grafana.json").read_text())
QUERIES = [
    (panel["title"], target["expr"]) for panel in DASHBOARD["panels"] for target in panel.get("targets", ())
]
_ROW = re.compile(r"^\| `(consistent_\w+)` \| (\w+) \|([\w, ]*)\| (.*) \|$", re.MULTILINE)


def test_all_metrics_are_listed():
    listed = [(name, kind, labels.strip(), what) for name, kind, labels, what in _ROW.findall(text(PAGE))]

    assert listed == [
        (full_name(name), each.kind, ", ".join(each.labels), each.help) for name, each in METRICS.items()
    ]


def samples() -> dict[str, set[str]]:
    """Return the labels of each sample that a scrape can give, by its name."""
    found = {full_name(name): {*each.labels} for name, each in METRICS.items()}
    for name, each in METRICS.items():
        if each.kind == "histogram":
            labels = found.pop(full_name(name))
            found |= {f"{full_name(name)}_{part}": labels for part in ("sum", "count")}
            found[f"{full_name(name)}_bucket"] = {*labels, "le"}
    return found


@pytest.mark.parametrize(("title", "query"), QUERIES)
def test_a_query_of_the_dashboard_names_what_exists(title, query):
    named = re.findall(r"\bconsistent_\w+", query)
    (name,) = set(named)
    known = samples()[name] | {"job", "instance"}  # which Prometheus adds

    grouped = {
        label.strip() for labels in re.findall(r"by \(([^)]*)\)", query) for label in labels.split(",")
    }
    matched = set(re.findall(r"[{,](\w+)=~?\"", query))

    assert grouped | matched <= known, title
    assert query.count("(") == query.count(")")


def test_the_dashboard_shows_every_metric():
    asked = set(re.findall(r"\bconsistent_\w+", " ".join(query for _, query in QUERIES)))

    assert {re.sub("_(sum|count|bucket)$", "", name) for name in asked} == set(map(full_name, METRICS))
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)
    names = {each["name"] for each in DASHBOARD["templating"]["list"]}
    assert (
        set(re.findall(r"\$\{?(\w+)", json.dumps(DASHBOARD["panels"]))) - {"__rate_interval", "__range"}
        == names
    )
    assert full_name("messages") in DASHBOARD["templating"]["list"][1]["definition"]


def test_what_a_fresh_process_shows_is_what_the_page_lists():
    shown = re.findall(r"^# TYPE (\w+) (\w+)$", Metrics().text(), re.MULTILINE)

    assert shown == [(name, kind) for name, kind, *_ in _ROW.findall(text(PAGE))]


def test_its_program_runs(tmp_path):
    (program,) = marked(PAGE, "otel")

    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=beside_the_project(),
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert 'consistent_messages_total{handler="ShootingRange",status="processed"} 2' in done.stdout
    assert done.stdout.count('"name": "process ShootingRange"') == 2
    assert re.search(r"^(Hit|Missed) \{'traceparent': '00-\w{32}-\w{16}-0\d'\}$", done.stdout, re.MULTILINE)
