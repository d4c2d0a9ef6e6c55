"""Dead letters that are redriven from the explorer become a batch of their own, on Spark."""

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


def test_redriven_letters_are_handled_by_one_batch(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    explored = played(tmp_path, games=2, nights=2, shots=4)

    async def letters():
        found = [each async for each in find_letters(explored.table, Selection())]
        return {each.letter.message_id: each for each in found}

    chosen = drive(letters())
    left = chosen.pop("broken-0")
    place = TablePlace(explored.url, TABLE)

    batch_id = asyncio.run(_redrive([*chosen.values()], place, "samples.shooting_range:app", explored.out))

    record = drive(Ledger(explored.table, system_clock).get(batch_id))
    again = drive(letters())
    assert (record.status.value, dict(record.counts)) == ("published", {"dead_letter": 3, "outputs": 0})
    assert again.pop("broken-0").letter == left.letter
    assert {name: (each.letter.batch, each.letter.tries) for name, each in again.items()} == dict.fromkeys(
        ("broken-1", "strange-0", "strange-1"), (batch_id, 2)
    )
