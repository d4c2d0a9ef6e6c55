"""Dead letters that cannot be redriven are not frozen."""

from pathlib import Path

import pytest

from eventstore import drive
from handlers import App
from runtime.dead_letters import Edits, RedriveRequest, Selection
from runtime.errors import UsageError
from runtime.spark.redriving import RedrivenLetters
from tests.unit.runtime.dead_letters.post import DAMAGED, Boxes, PostOffice, app, parcel


class Others(Boxes):
    pass


@pytest.mark.parametrize(
    ("wanted", "handlers", "problem"),
    [
        (RedriveRequest(Selection(message_id="nobody"), Edits(())), app, "There are no such letters"),
        (RedriveRequest(Selection(), Edits(['{"letter": "nobody"}'])), app, "1 of 1 edited lines match no"),
        (RedriveRequest(Selection(), Edits(())), App(Others), "The app has no handler Boxes for some"),
    ],
)
def test_what_cannot_be_redriven_leaves_no_file(
    tmp_path: Path, wanted: RedriveRequest, handlers: App, problem: str
):
    office = PostOffice()
    DAMAGED.add("a")
    office.batch(parcel("a"))
    DAMAGED.clear()

    with pytest.raises(UsageError, match=problem):
        drive(RedrivenLetters(str(tmp_path), "redrive").freeze(office.table, handlers, wanted))

    assert list(tmp_path.iterdir()) == []
