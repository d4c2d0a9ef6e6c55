"""A batch with keyed draws: its secret goes with the table, into replays, verifications and copies of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from eventstore import connect, drive
from handlers import App, Context, Handler, Message, State, handles
from handlers.draws import Seed
from runtime.archives.tables import export_table, import_table
from runtime.errors import UsageError
from runtime.spark import verify
from tests.integration.spark.conftest import Place
from tests.support.logs import message_id, row, write_lines
from tests.support.outcomes import published


class Drawn(Message):
    raffle: str


class Won(Message):
    number: int


class Raffle(Handler[State]):
    @handles(by="raffle")
    def draw(self, state: State, message: Drawn, context: Context) -> State:
        context.publish(Won(number=context.random.randrange(10**12)))
        return state


RAFFLE = App(Raffle)


async def _moved(place: Place, folder: Path) -> None:
    """Move the table into a store of its own by an export and an import."""
    old = await connect(place.store).table(place.table)
    manifest = await export_table(old, place.table, folder / "export", lambda *_: None)
    new = await connect(f"sqlite:///{folder}/copy.db").table(place.table)
    await import_table(new, place.table, folder / "export", manifest, lambda *_: None)


@pytest.mark.thorough
def test_the_secret_goes_with_the_table(place, tmp_path):
    log = write_lines(tmp_path / "log.jsonl", [row(n, "Drawn", {"raffle": f"r{n}"}) for n in range(3)])
    keyed = replace(place, app=RAFFLE)
    first = published(keyed.run(log, draws="keyed"))
    drive(_moved(place, tmp_path))
    copy = replace(keyed, store=f"sqlite:///{tmp_path}/copy.db")

    again = published(copy.run(log, batch_id="again"))
    foreseen = {Seed(message_id(n), "Raffle", f"r{n}").guid_text("message", 0) for n in range(3)}
    verified = verify(place.spark, log, RAFFLE, store=place.store, table=place.table)

    assert again == first
    assert len(first) == 3
    assert not {each[0] for each in first} & foreseen
    assert verified.is_clean
    assert {str(count.verdict) for count in verified.counts} == {"match"}
    with pytest.raises(UsageError, match="keyed since it was made"):
        keyed.run(log, draws="plain")
    with pytest.raises(UsageError, match="belongs to the app with the handlers Raffle"):
        place.run(log)
