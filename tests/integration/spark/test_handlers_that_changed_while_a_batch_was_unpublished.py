"""A version whose outputs are unpublished must be replayed as it was, or the batch fails and says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from eventstore import connect, drive
from handlers import App, Context, Handler, Message, State, handles
from runtime.clock import system_clock
from runtime.errors import BatchFailedError, BatchRefusedError
from runtime.ledger.ledger import Ledger
from tests.support.logs import row, write_lines
from tests.support.outcomes import statuses


class Said(Message):
    text: str


class Told(Message):
    key: str
    file: str


class Nothing(State):
    pass


class Untrue(Handler[Nothing]):
    """Publishes what stands in a file: not what a handler may do."""

    @handles(by="key")
    def told(self, state: Nothing, message: Told, context: Context) -> Nothing:
        context.publish(Said(text=Path(message.file).read_text()))
        return state


app = App(Untrue)


@pytest.fixture
def stopped(place):
    """Give the log of a batch that appended and then stopped, after which its handler says something else."""
    place.app = app
    file = place.folder / "truth"
    file.write_text("yes")
    log = write_lines(place.folder / "log.jsonl", [row(1, "Told", {"key": "k", "file": str(file)})])

    def stop(step: str) -> None:
        if step == "Round 0: committing outcomes":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        place.run(log, batch_id="night", step=stop)
    file.write_text("no")
    return log


@pytest.mark.thorough
def test_resuming_it_fails_with_a_sentence(place, stopped):
    with pytest.raises(
        BatchFailedError, match="batch night, whose outputs were never published, and cannot be replayed"
    ):
        place.run(stopped, batch_id="night")


@pytest.mark.thorough
def test_another_batch_with_its_messages_fails_too(place, stopped):
    with pytest.raises(BatchFailedError, match="has other outputs than recorded"):
        place.run(stopped, batch_id="morning")


@pytest.mark.thorough
def test_once_it_is_abandoned_the_message_is_a_dead_letter(place, stopped):
    async def abandon():
        async with connect(place.store) as store:
            await Ledger(await store.table(place.table), system_clock).abandon("night")

    drive(abandon())
    assert list(statuses(place.run(stopped, batch_id="morning")).values()) == [["nondeterministic"]]
    with pytest.raises(BatchRefusedError, match="abandoned"):
        place.run(stopped, batch_id="night")


@pytest.mark.thorough
def test_a_batch_can_be_told_to_fail_where_a_duplicate_differs(place):
    place.app = app
    file = place.folder / "truth"
    file.write_text("yes")
    log = write_lines(place.folder / "log.jsonl", [row(1, "Told", {"key": "k", "file": str(file)})])
    place.run(log, batch_id="night")
    file.write_text("no")

    with pytest.raises(
        BatchFailedError,
        match=r"of Untrue-k was redelivered. .*Said is published.* Batch day has failed, and .* run it again",
    ):
        place.run(log, batch_id="day", on_difference="fail")

    # ... and be resumed without it
    assert list(statuses(place.run(log, batch_id="day")).values()) == [["nondeterministic"]]
