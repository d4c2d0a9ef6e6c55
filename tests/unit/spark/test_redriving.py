"""Dead letters that cannot be redriven are not frozen, and those that are frozen are not replaced."""

from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from eventstore import drive
from handlers import App
from runtime import dead_letters
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


@pytest.mark.parametrize("error", [None, KeyboardInterrupt])
def test_letters_that_another_driver_has_frozen_meanwhile_stay_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[BaseException] | None
):
    # Given a redrive of two letters, and a driver with the same id that overtakes it and freezes one of them
    office = PostOffice()
    DAMAGED.update("ab")
    office.batch(parcel("a"), parcel("b"))
    DAMAGED.clear()
    letters, find = RedrivenLetters(str(tmp_path), "redrive"), dead_letters.find_letters
    both, one = (RedriveRequest(Selection(message_id=name), Edits(())) for name in (None, "a"))

    async def overtaken(*given: Any) -> AsyncIterator[dead_letters.FoundLetter]:
        async for found in find(*given):
            yield found
        monkeypatch.undo()
        assert await letters.freeze(office.table, app, one)
        if error:
            raise error

    monkeypatch.setattr(dead_letters, "find_letters", overtaken)
    with suppress(KeyboardInterrupt):
        assert not drive(letters.freeze(office.table, app, both))

    # Then that one is redriven, and nothing else is left
    assert letters.deliveries == 1
    letters.remove()
    assert list(tmp_path.iterdir()) == []
