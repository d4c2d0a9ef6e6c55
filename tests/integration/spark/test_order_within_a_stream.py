"""Messages of a stream are handled in the order of sequence, then enqueued_at, then message id."""

import itertools
import json

import pytest

from handlers import App, Context, Handler, Message, State, handles
from tests.support.logs import message_id, write_lines
from tests.support.outcomes import heads, statuses


class Noted(State):
    seen: tuple[str, ...] = ()


class Note(Message):
    book: str
    text: str


class Notebook(Handler[Noted]):
    @handles(by="book")
    def note(self, state: Noted, message: Note, context: Context) -> Noted:
        return state.model_copy(update={"seen": (*state.seen, message.text)})


app = App(Notebook)


def note(text, number, **fields):
    body = json.dumps({"book": "b", "text": text})
    return {"message_id": message_id(number), "type": "Note", "body": body, **fields}


ORDERED = [
    note("1", 9, sequence=1, enqueued_at="2026-01-05T00:00:00Z"),
    note("2", 8, sequence=2),
    note("3", 1, sequence=3, enqueued_at="2026-01-01T00:00:00Z"),
    note("4", 2, sequence=3, enqueued_at="2026-01-02T00:00:00Z"),
    note("5", 3, sequence=3, enqueued_at="2026-01-02T00:00:00Z"),
    note("6", 7, enqueued_at="2026-01-01T00:00:00Z"),
    note("7", 5),
    note("8", 6),
]


@pytest.mark.parametrize("turn", [3, *(pytest.param(each, marks=pytest.mark.thorough) for each in (1, 5))])
def test_whatever_the_order_of_the_log(place, turn):
    place.app = app
    rows = list(itertools.islice(itertools.cycle(ORDERED), turn, turn + len(ORDERED)))
    place.run(write_lines(place.folder / "log.jsonl", reversed(rows)))
    ((_, state),) = heads(place.store, place.table).values()
    assert json.loads(state)["seen"] == ["1", "2", "3", "4", "5", "6", "7", "8"]


@pytest.mark.thorough
def test_copies_stand_at_the_smallest_position_of_any_of_them(place):
    place.app = app
    # Given a message whose first copy says nothing of its place, and whose last says that it is the first
    rows = [
        note("late", 1),
        note("second", 2, sequence=2),
        note("late", 1, sequence=9),
        note("late", 1, sequence=1),
    ]

    # When a batch runs
    outcomes = place.run(write_lines(place.folder / "log.jsonl", rows))

    # Then it was handled first, and once
    ((_, state),) = heads(place.store, place.table).values()
    assert json.loads(state)["seen"] == ["late", "second"]
    assert statuses(outcomes)[message_id(1)] == ["duplicate", "duplicate", "processed"]
