"""What the README claims: its picture, its figures, its length, and where its comparisons can be checked."""

import re
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from eventstore import drive
from runtime import Envelope, Outcome
from runtime.algorithms.choice import Dependencies, make_batch_algorithms
from runtime.cli.commands.project import template
from runtime.messages.parsing import prepare
from runtime.versions.limits import MAX_STATE_BYTES
from samples.orders.domain import CustomerTold, OrderPaid, PaymentAsked, PaymentMade, PlaceOrder, TopUp
from tests.docs.pages import ROOT, text
from tests.docs.pasting import blocks
from tests.unit.runtime.tables import memory_table

README = text("README.md")
PICTURE = ROOT / "docs" / "overview.svg"
SVG = "{http://www.w3.org/2000/svg}"
CORES = 2


def drawn(left: float) -> list[str]:
    """Return the rows of text in a column of the picture, which show the log or the outcomes."""
    rows: dict[str, list[str]] = {}
    for each in ET.parse(PICTURE).iter(f"{SVG}text"):
        if 78 < float(each.get("y", 0)) < 340 and left <= float(each.get("x", 0)) < left + 200:
            rows.setdefault(each.get("y", ""), []).append(each.text or "")
    return [" ".join(row) for row in rows.values()]


def handled(log: list[str]) -> list[Outcome]:
    """Handle the deliveries of a log as a batch does: stream by stream, each in the order of its ids."""
    names: dict[str, Any] = {"__name__": "raffle"}
    exec(template("raffle")["raffle.py"], names)
    app, table = names["app"], memory_table()
    (handler,) = app.handlers.values()
    algorithms = make_batch_algorithms("state-based", Dependencies(app, table, table))
    deliveries: dict[str, list[Any]] = {"spring": [], "autumn": []}
    for message_id, kind, stream, *_ in sorted(line.split() for line in log):
        sent = Envelope.of(message_id, kind, f'{{"raffle": "{stream}", "name": "{message_id}"}}')
        deliveries[stream].append(prepare(handler, stream, sent))
    return [
        outcome
        for stream, each in deliveries.items()
        for outcome in drive(algorithms["Raffle"].process(stream, each))
    ]


def test_its_picture_shows_what_happens_to_its_log():
    log, outcomes = drawn(24), drawn(782)
    assert log == ["m2 Entered spring", "m1 Entered spring", "m4 Entered autumn", "m3 Drawn spring",
                   "m2 Entered spring copy", "m3 Drawn spring copy"]  # fmt: skip

    shown = [
        " ".join([each.envelope.message_id, each.status, *(output.type for output in each.outputs)])
        for each in handled(log)
    ]

    assert shown == outcomes
    assert "m3 processed Won" in shown


@pytest.mark.parametrize("name", ["overview", "orders"])
def test_its_pictures_are_text_and_shapes_for_light_and_dark(name):
    file = ROOT / "docs" / f"{name}.svg"
    picture = file.read_text()
    kinds = {each.tag.removeprefix(SVG) for each in ET.parse(file).iter()}

    assert kinds <= {"svg", "title", "desc", "style", "defs", "marker", "path", "rect", "text", "tspan"}
    assert "@media (prefers-color-scheme: dark)" in picture
    assert f"](docs/{name}.svg)" in README


def test_its_picture_of_orders_names_the_messages_of_the_sample():
    texts = ET.parse(ROOT / "docs" / "orders.svg").iter(f"{SVG}text")
    drawn = " ".join("".join(each.itertext()) for each in texts)

    types = (PlaceOrder, TopUp, PaymentAsked, PaymentMade, OrderPaid, CustomerTold)
    assert [each.__name__ for each in types if each.__name__ not in drawn] == []


def test_each_of_its_six_comparisons_says_where_it_can_be_checked():
    rows = [line for line in text("docs/comparison.md").splitlines() if line.startswith("| ")][1:]

    assert len(rows) == 6
    assert all("](https://" in row.split(" | ")[0] for row in rows)


def test_its_figures_are_those_of_the_code_and_of_the_benchmarks():
    rates = re.findall(
        r"^\| (?:1 message|3|50) a stream[^|]*\| ([\d,]+) \|", text("docs/performance.md"), re.MULTILINE
    )
    one, three, fifty = (f"{round(int(rate.replace(',', '')), -3):,}" for rate in rates)

    assert len(README.splitlines()) <= 120
    assert f"objects whose state exceeds {MAX_STATE_BYTES // 1024} KiB" in README
    assert f"two cores handle some [{one}, {three} or {fifty} messages/s]" in README


def test_the_page_on_projects_shows_the_files_of_a_new_one():
    shown = {block.argument: block.text for block in blocks("docs/project.md") if block.mark == "file"}

    assert set(shown) == {"raffle.py", "test_raffle.py", "raffle.jsonl", "consistent.toml"}
    assert shown == {name: template("raffle")[name] for name in shown}
