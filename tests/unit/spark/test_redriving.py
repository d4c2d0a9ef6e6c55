"""The letters of a redrive are chosen once, and those of the table are deleted when it is published."""

from pathlib import Path

import pyarrow.parquet
import pytest

from eventstore import drive
from handlers import App
from runtime import Processor
from runtime.algorithms.choice import published_by_nobody
from runtime.dead_letters import Edits, RedriveRequest, Selection, TableLetters
from runtime.errors import UsageError
from runtime.ledger.batch import BatchContext
from runtime.messages.envelope import Envelope, unpack_envelope
from runtime.messages.parsing import unroutable
from runtime.spark.redriving import RedrivenLetters
from tests.unit.runtime.dead_letters.post import DAMAGED, Boxes, PostOffice, app, parcel
from tests.unit.runtime.patience import PATIENCE
from tests.unit.runtime.worker import ToldClock

STRANGE = [Envelope(f"strange-{number}", "Strange", "{}") for number in range(3)]
EVERYTHING = RedriveRequest(Selection(), Edits(()))


@pytest.fixture
def office() -> PostOffice:
    """Give a table with a letter of a stream, and three of the table."""
    office = PostOffice()
    DAMAGED.add("a")
    office.batch(parcel("a"))
    DAMAGED.clear()
    for message in STRANGE:
        drive(Processor(app, office.table, published_by_nobody).process(message))
    return office


def frozen(letters: RedrivenLetters):
    return pyarrow.parquet.read_table(f"{letters.path}/letters.parquet").to_pylist()


def test_each_is_kept_as_it_was_with_where_it_goes(office: PostOffice, tmp_path: Path):
    letters = RedrivenLetters(str(tmp_path), "redrive")
    assert not letters.are_frozen

    assert drive(letters.freeze(office.table, app, EVERYTHING)) == 4

    assert letters.are_frozen
    first, *rows = frozen(letters)
    assert unpack_envelope(first["delivery"]) == parcel("a")
    assert {unpack_envelope(row["delivery"]).message_id for row in rows} == {
        each.message_id for each in STRANGE
    }
    assert (first["handler"], first["business_id"], first["letter"]) == ("Boxes", "b", 1)
    assert {(row["handler"], row["business_id"]) for row in rows} == {(None, None)}


def test_those_of_the_table_that_were_not_refused_again_are_deleted(office: PostOffice, tmp_path: Path):
    letters = RedrivenLetters(str(tmp_path), "redrive")
    drive(letters.freeze(office.table, app, EVERYTHING))
    # Given that one was refused again, and that another driver does the same
    again = BatchContext("redrive", is_redrive=True, number=7)
    kept = TableLetters(office.table, again, ToldClock(), PATIENCE)
    drive(kept.keep([unroutable(STRANGE[1], None)]))
    other = RedrivenLetters(str(tmp_path), "redrive")

    drive(letters.finish(office.table))
    drive(other.finish(office.table))

    assert office.names() == ["a", "strange-1"]
    assert not (tmp_path / "_redrive").exists()


@pytest.mark.parametrize(
    ("wanted", "handlers", "problem"),
    [
        (RedriveRequest(Selection(message_id="nobody"), Edits(())), app, "There are no such letters"),
        (RedriveRequest(Selection(), Edits(['{"letter": "nobody"}'])), app, "1 of 1 edited lines match no"),
        (EVERYTHING, None, "The app has no handler Boxes for some of the letters"),
    ],
)
def test_what_cannot_be_redriven_leaves_no_file(
    office: PostOffice, tmp_path: Path, wanted: RedriveRequest, handlers: App | None, problem: str
):
    class Others(Boxes):
        pass

    letters = RedrivenLetters(str(tmp_path), "redrive")

    with pytest.raises(UsageError, match=problem):
        drive(letters.freeze(office.table, handlers or App(Others), wanted))

    assert list(tmp_path.iterdir()) == []
