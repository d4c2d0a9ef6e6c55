"""A letter that waits holds the horizon of its stream, so that a redrive is never too late."""

from typing import Any

from eventstore import Table, drive
from runtime.algorithms.state_based.truncation import HeldBy, Truncated, TruncationRules, truncate_stream
from runtime.ledger.batch import BatchContext, OpenBatches
from runtime.versions.dead_letters import Kind
from tests.unit.runtime.diary import SKY, misbehave, write
from tests.unit.runtime.patience import PATIENCE
from tests.unit.runtime.tables import contents, memory_table
from tests.unit.runtime.worker import DAY, HOUR, NOW, ToldClock, Worker, ends, letters, made_by

REDRIVE = BatchContext("redrive", number=90, is_redrive=True)


def at(day: int, *deliveries, table: Table) -> list[str]:
    """Handle deliveries in a batch of that day, and say what became of them."""
    worker = Worker(table, clock=ToldClock(NOW + day * DAY), batch=BatchContext(f"day-{day}", number=day))
    return ends(worker.process(*(each._replace(enqueued_at=NOW + day * DAY) for each in deliveries)))


def history(*, refused_on: int) -> Table:
    """Return a table with a stream of ten days, and a message that was refused on one of them."""
    table = memory_table()
    for day in range(1, 11):
        bad = [misbehave("fail under a dark sky", "bad")] if day == refused_on else []
        at(day, *bad, write(f"line {day}"), table=table)
    return table


def cut(table: Table, *, dry_run: bool = False, **rules: int) -> Truncated:
    given: dict[str, Any] = {"older_than": DAY, **rules}
    made = TruncationRules.of(NOW + 30 * DAY, OpenBatches(next=90), **given)
    found = drive(truncate_stream(table, "Diary-d-1", made, PATIENCE, dry_run=dry_run))
    assert found is not None
    return found


def test_nothing_is_cut_that_would_make_its_redrive_too_late(monkeypatch):
    monkeypatch.setitem(SKY, "colour", "black")
    table = history(refused_on=5)
    monkeypatch.setitem(SKY, "colour", "blue")

    found = cut(table)

    assert (found.held, found.versions) == (HeldBy.LETTER, 4)
    redriven = misbehave("fail under a dark sky", "bad")._replace(enqueued_at=NOW + 5 * DAY)
    worker = Worker(table, clock=ToldClock(NOW + 31 * DAY), batch=REDRIVE)
    assert ends(worker.process(redriven)) == ["processed"]
    assert cut(table).held is None


def test_the_redelivery_window_counts_too(monkeypatch):
    monkeypatch.setitem(SKY, "colour", "black")
    table = history(refused_on=5)

    assert cut(table, redelivery_window=2 * DAY).versions == 2


def test_an_undated_letter_holds_undated_versions(monkeypatch):
    monkeypatch.setitem(SKY, "colour", "black")
    table = memory_table()
    for number in range(3):
        Worker(table, batch=BatchContext(f"b-{number}", number=number)).process(
            write(f"line {number}"), misbehave("fail under a dark sky", "bad")
        )

    assert cut(table, allow_undated=True).held is HeldBy.LETTER


def test_letters_can_be_given_up_by_their_age_and_their_message_stays_refused(monkeypatch):
    monkeypatch.setitem(SKY, "colour", "black")
    table = history(refused_on=5)
    before = contents(table)

    planned = cut(table, dry_run=True, give_up_letters_older_than=20 * DAY)
    assert contents(table) == before
    found = cut(table, give_up_letters_older_than=20 * DAY)

    assert found == planned
    assert (found.letters, found.versions, found.held) == (1, 9, None)
    (letter,) = letters(table)
    assert (letter.kind, letter.envelope) == (Kind.GIVEN_UP, None)
    assert made_by(table) == ["line 10"]
    assert at(31, misbehave("fail under a dark sky", "bad"), table=table) == ["handler_error"]


def test_younger_letters_are_not_given_up(monkeypatch):
    monkeypatch.setitem(SKY, "colour", "black")
    table = history(refused_on=5)

    found = cut(table, give_up_letters_older_than=26 * DAY - HOUR)

    assert (found.letters, found.held) == (0, HeldBy.LETTER)
