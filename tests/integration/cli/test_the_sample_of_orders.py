"""The sample of orders, from its log to the warehouse and the letters, as `python -m samples.orders` runs it."""

import shlex
import sqlite3
from contextlib import closing

import pyarrow.parquet as pq
import pytest

from samples.orders.__main__ import STEPS, write_log
from tests.plugins.spark import Workplace

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(600)]  # six rounds on Spark


def test_its_steps_do_everything_once_however_often_they_are_run(workplace: Workplace):
    write_log(workplace.path / "orders.jsonl")

    seen = [run(workplace) for _ in range(2)]

    assert seen[0] == seen[1]
    paid, letters, records = seen[0]
    told = [line.split()[4] for line in letters]
    sent = [each for each in records if each["result"] == "sent"]
    assert len(records) == 40
    assert len(told) == len(set(told)) == len(sent)
    assert {each["customer"] for each in records if each["result"] == "not_sent"} == {"Tony"}
    on_their_way = {line.split()[4] for line in letters if "on its way" in line}
    assert on_their_way <= {order for order, _ in paid}
    assert len({rate for _, rate in paid}) > 3


def run(workplace: Workplace):
    """Run all steps, and return the paid orders, the letters and the records of them."""
    for step in STEPS:
        done = workplace.consistent(*shlex.split(step))
        assert done.returncode == 0, done.stderr
    with closing(sqlite3.connect(workplace.path / "warehouse.db")) as warehouse:
        paid = warehouse.execute(
            "SELECT body ->> 'order_id', body ->> 'rate' FROM paid_orders ORDER BY 1"
        ).fetchall()
    letters = (workplace.path / "letters.txt").read_text().splitlines()
    return paid, letters, pq.read_table(workplace.path / "letters").to_pylist()
