"""Dead letters wait in the table, and are handled again once their cause is mended: by a redrive, or in another log."""

import asyncio
import json
from pathlib import Path

import pytest

from eventstore import connect
from handlers import App, Context, Handler, Message, State, handles
from runtime.dead_letters import Selection, find_letters, to_line
from runtime.errors import UsageError
from runtime.file_systems import open_folder
from runtime.spark import letters, redrive
from runtime.spark.batch import Rounds
from tests.support.clocks import FrozenClock
from tests.support.logs import message_id, row, write_lines
from tests.support.outcomes import all_outcomes, heads, published, statuses

CLOCK = FrozenClock.at("2026-03-01T12:00:00")


class Sent(Message):
    """A parcel, which can be taken once there is a file of the name that it `needs`."""

    box: str
    parcel: int
    needs: str = ""


class Returned(Message):
    box: str


class Noted(Message):
    parcel: int


class Box(State):
    parcels: tuple[int, ...] = ()


class Boxes(Handler[Box]):
    @handles(by="box")
    def sent(self, state: Box, message: Sent, context: Context) -> Box:
        if message.needs and not Path(message.needs).exists():
            raise ValueError(f"parcel {message.parcel} cannot be taken")
        context.publish(Noted(parcel=message.parcel))
        return Box(parcels=(*state.parcels, message.parcel))


class Returns(Handler[Box]):
    @handles(by="box")
    def returned(self, state: Box, message: Returned, context: Context) -> Box:
        return Box(parcels=(*state.parcels, 0))


app = App(Boxes)
app_with_returns = App(Boxes, Returns)


@pytest.fixture
def boxes(place):
    place.app = app
    return place


def needing(place, name="mended"):
    """Return a file that handlers wait for."""
    return str(place.folder / name)


def sent(number, parcel, box="b", needs=""):
    return row(number, "Sent", {"box": box, "parcel": parcel, "needs": needs})


def run(place, name, *rows, **options):
    return place.run(write_lines(place.folder / f"{name}.jsonl", rows), clock=CLOCK, **options)


def again(place, **options):
    where = {"app": place.app, "store": place.store, "table": place.table, "out": place.out, "clock": CLOCK}
    return redrive(place.spark, **{**where, "partitions": 2, **options})


def waiting(place):
    """Return the letters of a table."""

    async def read():
        async with connect(place.store) as store:
            return [found async for found in find_letters(await store.table(place.table), Selection())]

    return asyncio.run(read())


def reasons(place):
    return [(found.letter.message_id, found.letter.reason) for found in waiting(place)]


def parcels(place, box="b"):
    return json.loads(heads(place.store, place.table)[f"Boxes-{box}"][1])["parcels"]


def test_what_failed_is_processed_once_its_cause_is_mended(boxes):
    # Given a batch in which a handler failed, and a redelivery, which is refused as well
    bad = sent(2, 2, needs=needing(boxes))
    run(boxes, "first", sent(1, 1), bad, sent(3, 3))
    assert statuses(run(boxes, "second", bad)) == {message_id(2): ["handler_error"]}
    (letter,) = letters(boxes.spark, store=boxes.store, table=boxes.table).collect()
    assert (letter.message_id, letter.handler, letter.stream) == (message_id(2), "Boxes", "b")
    assert (letter.body, letter.tries, letter.reason) == (bad["body"], 1, "handler_error")

    # When it is redriven too early, and again when all is well
    assert statuses(again(boxes)) == {message_id(2): ["handler_error"]}
    assert [found.letter.tries for found in waiting(boxes)] == [2]
    Path(needing(boxes)).touch()
    outcomes = again(boxes, batch_id="redrive")

    # Then it is processed, and a letter no more
    assert statuses(outcomes) == {message_id(2): ["processed"]}
    assert len(published(outcomes)) == 1
    assert parcels(boxes) == [1, 3, 2]
    assert waiting(boxes) == []
    # ... the batch is published, and can be looked at again; there is nothing else to redrive
    assert all_outcomes(again(boxes, batch_id="redrive")) == all_outcomes(outcomes)
    with pytest.raises(UsageError, match="There are no such letters"):
        again(boxes)
    assert not (boxes.folder / "out" / "_redrive").exists()


def test_nothing_overtakes_in_a_parked_stream_until_it_is_redriven(boxes):
    # Given a stream that was parked in one batch, with followers in it and in the next
    first, third = needing(boxes, "first"), needing(boxes, "third")
    run(boxes, "one", sent(1, 1, needs=first), sent(2, 2), on_error="park")
    found = run(boxes, "two", sent(3, 3, needs=third), sent(4, 4), sent(5, 5, box="other"))
    ends = {3: "held_back", 4: "held_back", 5: "processed"}
    assert statuses(found) == {message_id(number): [end] for number, end in ends.items()}

    # When it is redriven, and the third is refused
    Path(first).touch()
    outcomes = again(boxes)

    # Then those before it are processed, in their order, and the one behind it waits
    ends = {1: "processed", 2: "processed", 3: "handler_error", 4: "held_back"}
    assert statuses(outcomes) == {message_id(number): [end] for number, end in ends.items()}
    assert parcels(boxes) == [1, 2]
    # ... until it is mended
    Path(third).touch()
    again(boxes)
    assert parcels(boxes) == [1, 2, 3, 4]
    assert waiting(boxes) == []


@pytest.mark.thorough
def test_a_body_is_mended_by_hand(boxes):
    # Given a letter whose body cannot be read, and a line without any message
    run(boxes, "one", row(1, "Sent", {"box": "b", "parcel": "many"}, business_id="b"), "nothing")
    assert sorted(reasons(boxes)) == [("", "invalid_envelope"), (message_id(1), "invalid_body")]
    lines = [json.loads(to_line(found)) for found in waiting(boxes)]

    # When both are edited
    lines[0]["body"] = {"box": "b", "parcel": 7}
    lines[1] |= {"message_id": "typed by hand", "type": "Sent", "body": {"box": "b", "parcel": 8}}
    outcomes = again(boxes, edits=map(json.dumps, lines))

    # Then they are processed
    assert statuses(outcomes) == {message_id(1): ["processed"], "typed by hand": ["processed"]}
    assert sorted(parcels(boxes)) == [7, 8]
    assert waiting(boxes) == []


def test_a_type_that_was_unknown_goes_to_the_handler_that_was_added(boxes):
    run(boxes, "one", row(1, "Returned", {"box": "b"}), row(2, "Lost", {"box": "b"}))
    run(boxes, "two", row(1, "Returned", {"box": "b"}))
    kept = [found.letter.message_id for found in waiting(boxes) if found.row is not None]
    assert kept.count(message_id(1)) == 1

    boxes.app = app_with_returns
    outcomes = again(boxes)

    assert statuses(outcomes) == {message_id(1): ["processed"], message_id(2): ["unknown_type"]}
    (found,) = waiting(boxes)
    assert (found.letter.message_id, found.letter.tries) == (message_id(2), 2)


@pytest.mark.thorough
def test_a_redrive_whose_letters_were_deleted_is_not_resumed_with_others(boxes):
    run(boxes, "one", sent(1, 1, needs=needing(boxes)))

    def die(step):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        again(boxes, batch_id="redrive", step=die)
    (boxes.folder / "out" / "_redrive" / "redrive" / "frozen" / "letters.parquet").unlink()

    with pytest.raises(UsageError, match="are missing in"):
        again(boxes, batch_id="redrive")


@pytest.mark.thorough
def test_a_redrive_that_cannot_begin_leaves_nothing_behind(boxes):
    run(boxes, "one", sent(1, 1, needs=needing(boxes)))
    (boxes.folder / "out" / "batch_id=used" / "round=0").mkdir(parents=True)

    with pytest.raises(UsageError, match="holds outcomes of another batch with the id used"):
        again(boxes, batch_id="used")

    assert not (boxes.folder / "out" / "_redrive").exists()
    assert len(waiting(boxes)) == 1


@pytest.mark.thorough
def test_letters_of_a_redrive_that_another_driver_has_ended_stay(boxes, monkeypatch):
    run(boxes, "one", row(1, "Lost", {}))

    def ended(rounds, batch_id):
        monkeypatch.undo()
        again(boxes, batch_id=batch_id)
        run(boxes, "two", row(2, "Lost", {}))

    monkeypatch.setattr(Rounds, "find", ended)
    again(boxes, batch_id="redrive")

    assert sorted(found.letter.message_id for found in waiting(boxes)) == [message_id(1), message_id(2)]


@pytest.mark.thorough
@pytest.mark.connect(thorough=True)
def test_a_redrive_has_its_outcomes_on_an_object_store(boxes, object_store):
    # Given a letter of a batch whose outcomes are there
    needed = boxes.folder / "label"
    run(boxes, "night", sent(0, 0), sent(1, 1, needs=str(needed)), out=object_store, batch_id="night")
    assert reasons(boxes) == [(message_id(1), "handler_error")]

    # When its cause is mended, and it is redriven, and that redrive is run again
    needed.touch()
    found, again_found = (
        again(boxes, out=object_store, batch_id="mended").select("message_id", "status").collect()
        for _ in range(2)
    )

    # Then the letter is processed, once, and the outcomes are beside those of the batch
    assert found == again_found == [(message_id(1), "processed")]
    assert reasons(boxes) == []
    assert parcels(boxes) == [0, 1]
    seen = {name for name in open_folder(object_store).names() if not name.startswith("_")}
    assert seen == {"batch_id=mended", "batch_id=night"}
