"""Letters that a truncation gives up are in files first, as lines that tell all of them, and only then are given up."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eventstore import InterceptedTable, KeyRange, Table, drive
from runtime.algorithms.state_based.truncation import TruncationRules
from runtime.archives.versions import files_that_name, prepare_parts
from runtime.batch_options import TablePlace
from runtime.dead_letters import Selection, find_letters
from runtime.errors import ArchiveError
from runtime.ledger.batch import OpenBatches
from runtime.spark.scan import Task
from runtime.spark.truncation import TruncationJob
from runtime.spark.worker.connection import Connection
from tests.support.clocks import FrozenClock
from tests.unit.runtime.diary import misbehave
from tests.unit.runtime.worker import DAY, NOW, ToldClock, Worker

DIARIES = ("d-1", "d-2", "d-3")
OLD, YOUNG = NOW - 100 * DAY, NOW - DAY
RULES = TruncationRules.of(NOW, OpenBatches(), older_than=30 * DAY)


class CrashError(Exception):
    """Stands for a process that died."""


@pytest.fixture
def place(tmp_path: Path) -> TablePlace:
    """Give a table with a letter in each of three streams, and a young one in one of them."""
    place = TablePlace(f"sqlite:///{tmp_path}/store.db", "games")
    table = Connection(place).table
    for diary in DIARIES:
        refuse(table, diary, f"bad-{diary}", OLD)
    refuse(table, "d-2", "young", YOUNG)
    return place


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "export"
    prepare_parts(folder)
    return folder


def refuse(table: Table, diary: str, message_id: str, at: int) -> None:
    message = misbehave("fail", message_id, enqueued_at=at)
    body = str(message.body).replace('"d-1"', f'"{diary}"')
    worker = Worker(table, clock=ToldClock(at), business_id=diary)
    assert worker.process(message._replace(body=body))[0].is_dead_letter


def truncate(place: TablePlace, folder: Path | None, **options: Any) -> int:
    """Give up what is older than thirty days, and return how many that were."""
    job = TruncationJob(
        given=RULES,
        now=NOW,
        open_batches=OpenBatches(),
        acknowledged=None,
        give_up=NOW - 30 * DAY,
        dry_run=False,
        clock=FrozenClock(NOW),
        export=None if folder is None else str(folder),
        **options,
    )
    return sum(row["letters"] for rows in Task(job, place).results([KeyRange()]) for row in rows)


def waiting(place: TablePlace) -> set[str]:
    async def read() -> set[str]:
        table = Connection(place).table
        return {found.letter.message_id async for found in find_letters(table, Selection())}

    return drive(read())


def exported(folder: Path) -> list[dict[str, Any]]:
    return [
        json.loads(line) for path in folder.glob("letters-*.jsonl") for line in path.read_text().splitlines()
    ]


def test_each_is_a_line_like_those_that_letters_are_exported_to(place: TablePlace, folder: Path):
    assert truncate(place, folder) == 3

    assert waiting(place) == {"young"}
    lines = exported(folder)
    assert [(each["stream"], each["message_id"]) for each in lines] == [
        (each, f"bad-{each}") for each in DIARIES
    ]
    assert json.loads(lines[0]["body"])["how"] == "fail"
    assert lines[0]["reason"] == "handler_error"
    (path,) = folder.iterdir()
    assert files_that_name(folder, "Diary", ["d-2"]) == {path: 1}


def test_without_old_letters_there_is_no_file(place: TablePlace, folder: Path):
    truncate(place, None)

    assert truncate(place, folder) == 0
    assert list(folder.iterdir()) == []


def test_after_a_crash_at_any_call_each_letter_waits_or_is_in_a_file(place: TablePlace, folder: Path):
    points = 0
    while exported(folder) == [] or waiting(place) != {"young"}:
        points += 1

        def die(call: str, partition: str, number: int, *_: object, point: int = points) -> None:
            if number == point:
                raise CrashError

        try:
            truncate(
                place, folder, wrap=lambda table, die=die: InterceptedTable(table, before=die), in_flight=1
            )
        except CrashError:
            assert not list(folder.glob("*-unfinished"))
        kept = {each["message_id"] for each in exported(folder)}
        assert waiting(place) | kept == {"young", *(f"bad-{diary}" for diary in DIARIES)}
    assert points > 5


def test_what_was_not_read_back_as_it_was_written_is_not_given_up(
    place: TablePlace, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    flush: Callable[[int], None] = os.fsync

    def damage(descriptor: int) -> None:
        flush(descriptor)
        for path in folder.glob("letters-*"):
            path.write_bytes(path.read_bytes()[:-10])

    monkeypatch.setattr(os, "fsync", damage)

    with pytest.raises(ArchiveError, match="does not hold what was written to it"):
        truncate(place, folder)

    assert len(waiting(place)) == 4
    assert list(folder.iterdir()) == []
