"""Versions of single messages whose outputs may be unpublished are kept, until somebody says otherwise."""

from typing import Any

import pytest

from eventstore import Table, drive
from handlers import App, Context, Handler, Message, State, handles
from runtime.algorithms.state_based.truncation import HeldBy, Truncated, TruncationRules, truncate_stream
from runtime.ledger.batch import BatchContext
from runtime.versions import limits
from tests.unit.runtime.diary import delivery, write
from tests.unit.runtime.patience import PATIENCE
from tests.unit.runtime.tables import memory_table
from tests.unit.runtime.worker import DAY, NOW, ToldClock, Worker, ends, made_by, open_batches, outputs

# Which versions may go: each rule alone keeps what it is there to keep.

KEY = "Diary-d-1"
OLD = NOW - 10 * DAY


@pytest.fixture(params=["tail", "runs"], autouse=True)
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let versions stand in the tail, or each in a run."""
    if request.param == "runs":
        monkeypatch.setattr(limits, "MAX_SEGMENT_VERSIONS", 0)


def handle(table: Table, message: Any, *, batch: str | None = None, at: int = OLD) -> None:
    worker = Worker(table, clock=ToldClock(at), batch=BatchContext(batch))
    assert ends(worker.process(message)) == ["processed"]


def truncate(table: Table, key: str = KEY, **rules: Any) -> Truncated:
    made = TruncationRules.of(NOW, open_batches("running"), **{"older_than": DAY, **rules})
    truncated = drive(truncate_stream(table, key, made, PATIENCE))
    assert truncated is not None
    return truncated


def test_a_message_whose_worker_died_before_it_published_is_not_too_late():
    # Given a message whose outputs are lost, and newer ones
    table = memory_table()
    lost = write("lost", enqueued_at=OLD)
    handle(table, lost)
    for line in "ab":
        handle(table, write(line, enqueued_at=OLD))

    # When the stream is truncated by default, and the queue delivers the message again
    truncated = truncate(table)
    again = Worker(table).process(lost)

    # Then it gives its outputs
    assert (truncated.versions, truncated.held) == (0, HeldBy.UNACKNOWLEDGED)
    assert ends(again) == ["duplicate"]
    assert outputs(again)


class Rung(Message):
    """Somebody rings, loudly or not."""

    door: str
    is_loud: bool = False


class Heard(Message):
    """A loud bell is heard."""


class Bell(Handler[State]):
    """Publishes something for loud rings only."""

    @handles(by="door")
    def ring(self, state: State, message: Rung, context: Context) -> State:
        if message.is_loud:
            context.publish(Heard())
        return state


def test_what_has_no_outputs_has_nothing_to_lose():
    # Given a stream of rings, the fourth of which is loud
    table = memory_table()
    for number, is_loud in enumerate([False, False, False, True, False, False]):
        body = {"door": "east", "is_loud": is_loud}
        ring = delivery(f"m{number}", "Rung", body, enqueued_at=OLD)
        worker = Worker(table, App(Bell), clock=ToldClock(OLD), business_id="east")
        assert ends(worker.process(ring)) == ["processed"]

    # Then what was made before that goes by default, and all but the newest with a promise
    truncated = truncate(table, key="Bell-east")
    assert (truncated.kept_from, truncated.held) == (4, HeldBy.UNACKNOWLEDGED)
    truncated = truncate(table, key="Bell-east", acknowledged_after=0)
    assert (truncated.kept_from, truncated.held) == (6, None)


def test_the_promise_lets_go_what_is_older_than_it():
    table = memory_table()
    for number, line in enumerate("abcd"):
        handle(table, write(line, enqueued_at=OLD), at=OLD + number)

    assert truncate(table, acknowledged_after=NOW - OLD - 2).kept_from == 3
    assert made_by(table) == ["c", "d"]
    assert truncate(table, acknowledged_after=DAY).held is None
    assert made_by(table) == ["d"]


def test_versions_of_batches_are_told_by_their_batch_whatever_is_promised():
    table = memory_table()
    handle(table, write("a", enqueued_at=OLD), batch="done")
    handle(table, write("b", enqueued_at=OLD), batch="running")
    handle(table, write("c", enqueued_at=OLD))

    truncated = truncate(table, acknowledged_after=0)

    assert (truncated.kept_from, truncated.held) == (2, HeldBy.OPEN_BATCH)
