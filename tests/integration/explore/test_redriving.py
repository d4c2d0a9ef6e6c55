"""A dead letter that is redriven from the explorer becomes a batch of its own, on Spark."""

import asyncio

import pytest

from eventstore import drive
from runtime.batch_options import TablePlace
from runtime.cli.commands.explore import _redrive
from runtime.clock import system_clock
from runtime.dead_letters import Selection, find_letters
from runtime.ledger.ledger import Ledger
from tests.support.explored import TABLE, played

pytestmark = pytest.mark.thorough


def test_a_redriven_letter_is_handled_by_a_batch(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    explored = played(tmp_path, games=2, nights=1, shots=4)

    async def first():
        return await anext(find_letters(explored.table, Selection(handler="ShootingRange")))

    found = drive(first())
    place = TablePlace(explored.url, TABLE)

    batch_id = asyncio.run(_redrive(found, place, "samples.shooting_range:app", explored.out))

    record = drive(Ledger(explored.table, system_clock).get(batch_id))
    again = drive(first())
    assert (record.status.value, dict(record.counts)) == ("published", {"dead_letter": 1, "outputs": 0})
    assert (again.letter.message_id, again.letter.batch, again.letter.tries) == (
        found.letter.message_id,
        batch_id,
        2,
    )
