"""The sample of orders, from its log to the warehouse and the letters, as `python -m samples.orders` runs it."""

import asyncio
import re
import shlex
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from eventstore import connect
from runtime.documents import FolderDocuments
from runtime.publishing.publisher import Record
from runtime.publishing.records import RECORD, read_record, rows_of
from samples.orders.__main__ import EMBEDDED, ORDERS, Places, steps, write_log
from samples.orders.warehouse import check, paid_orders
from tests.docs.pasting import beside_the_project, marked, paste
from tests.plugins.kafka import running_kafka
from tests.plugins.spark import Workplace
from tests.support import servers


@pytest.fixture(scope="module")
def embedded(workplace: Workplace) -> Workplace:
    """Run the sample with embedded stores, and return its folder."""
    run(workplace, EMBEDDED)
    return workplace


def run(workplace: Workplace, places: Places) -> None:
    """Run the steps that call `consistent`."""
    write_log(workplace.path)
    for step in steps(places):
        if step.startswith("consistent "):
            done = workplace.consistent(*shlex.split(step)[1:])
            assert done.returncode == (3 if "post:send" in step else 0), done.stderr


def seen(workplace: Workplace, places: Places) -> tuple[Any, ...]:
    """Return the published orders, those with a wrong invoice, the letters, and their records."""
    with workplace.at_work():
        orders = list(paid_orders(places.warehouse))
        wrong = asyncio.run(check(orders, FolderDocuments(places.documents)))
        records = asyncio.run(recorded(places.store))
    letters = (workplace.path / "letters.txt").read_text().splitlines()
    return orders, wrong, letters, records


async def recorded(url: str) -> list[Record]:
    """Return the records of the outputs that were sent to customers."""
    async with connect(url) as store:
        rows = rows_of(await store.table("orders", make=False), RECORD)
        return [read_record(row) async for row in rows]


def told(letters: list[str], what: str = "") -> list[str]:
    """Return the ids of orders in letters that contain `what`."""
    return [line.split()[4] for line in letters if what in line]


def is_whole(sight: tuple) -> None:
    orders, wrong, letters, records = sight
    assert len(orders) == len({order.invoice.name for order in orders}) > ORDERS // 4
    assert wrong == []
    assert len({order.rate for order in orders}) > 3
    sent = [each for each in records if each.result == "sent"]
    assert len(records) == ORDERS
    assert len(told(letters)) == len(set(told(letters))) == len(sent)
    assert {each.customer for each in records if each.result == "not_sent"} == {"Tony"}
    paid = {order.order_id for order in orders if order.customer != "Tony"}
    assert set(told(letters, "on its way")) == paid


@pytest.mark.thorough
def test_each_paid_order_has_an_invoice_each_customer_is_told_once_and_a_second_run_changes_nothing(embedded):
    before = seen(embedded, EMBEDDED)
    is_whole(before)
    invoices = [path for path in (embedded.path / "documents").rglob("*") if path.is_file()]
    assert len(invoices) == len(before[0])

    run(embedded, EMBEDDED)
    assert seen(embedded, EMBEDDED) == before


@pytest.mark.thorough
def test_the_warehouse_notices_a_wrong_and_a_missing_invoice(embedded):
    with embedded.at_work():
        first, second, *_ = paid_orders(EMBEDDED.warehouse)
    there = embedded.path / "documents"
    kept = {order.invoice.name: (there / order.invoice.name).read_bytes() for order in (first, second)}
    try:
        (there / first.invoice.name).write_bytes(b"%PDF another")
        (there / second.invoice.name).unlink()
        assert seen(embedded, EMBEDDED)[1] == [first.order_id, second.order_id]
    finally:
        for name, content in kept.items():
            (there / name).write_bytes(content)


@pytest.mark.thorough
def test_the_result_is_the_same_with_azurite_postgresql_and_redis(embedded):
    (embedded.path / "outcomes").rename(embedded.path / "embedded-outcomes")
    (embedded.path / "letters.txt").unlink()

    sights = []
    with servers.running_servers() as places:
        for _ in range(2):
            run(embedded, places)
            sights.append(seen(embedded, places))

    is_whole(sights[0])
    assert sights[0] == sights[1]


@pytest.mark.thorough
def test_the_commands_of_its_page_run_it_and_leave_no_server(tmp_path):
    (commands,) = marked("docs/orders.md", "run")

    printed = paste(commands, tmp_path, beside_the_project())

    assert len(re.findall(r"The warehouse can send \d+ orders, each with its invoice\.", printed)) == 2
    ports = set(re.findall(r"127\.0\.0\.1:(\d+)", printed))
    assert len(ports) == 4
    for port in ports:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", int(port)), timeout=1)


def live(folder: Path, *arguments: str, module: str = "samples.orders") -> list[str]:
    """Run the live shop. Return what customers are told."""
    command = [sys.executable, "-m", module, "--live", *arguments]
    done = subprocess.run(
        command,
        cwd=folder,
        env=beside_the_project(),
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [line for line in done.stdout.splitlines() if "Your order" in line]


def test_the_live_shop_tells_each_customer_of_each_order(tmp_path):
    assert marked("docs/orders.md", "live")[0].splitlines()[0] == "python -m samples.orders --live"
    told = live(tmp_path)

    assert len(told) == ORDERS
    paid = sum("is on its way" in line for line in told)
    assert paid > 0
    assert len(list((tmp_path / "orders-output/live/documents").rglob("*.pdf"))) == paid


@pytest.mark.thorough
def test_the_live_shop_on_kafka(tmp_path):
    assert len(live(tmp_path, module="tests.support.servers")) == ORDERS
    with running_kafka() as kafka:
        assert len(live(tmp_path, f"kafka://{kafka.address}")) == ORDERS
