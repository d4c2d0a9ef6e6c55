"""A truncation that was stopped or killed in the middle is finished by the next one, with the same result."""

import json
import os
import signal
import threading
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from eventstore import Table, connect, drive
from runtime.clock import system_clock
from runtime.leases import CleanUpLease
from runtime.versions import limits
from runtime.versions.stream import summaries
from tests.integration.cli.folder import Folder
from tests.unit.runtime.diary import ponder
from tests.unit.runtime.worker import NOW, ToldClock, Worker

pytestmark = pytest.mark.timeout(600)
STREAMS = 150
CUT = ["truncate", "--store", "sqlite:///store.db", "--table", "games", "--older-than", "1d"]
CUT += ["--json", "--yes", "--acknowledged-after", "0s"]
SLOWLY = ["--max-requests-per-second", "60"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch) -> Folder:
    """Make a store in which each stream has two runs that may be deleted, and a tail."""
    place = tmp_path / "place"
    place.mkdir()
    store = connect(f"sqlite:///{place}/store.db")
    table = drive(store.table("games"))
    for number in range(STREAMS):
        worker = Worker(table, clock=ToldClock(NOW), business_id=f"{number:03}")
        with monkeypatch.context() as patched:
            patched.setattr(limits, "MAX_SEGMENT_BYTES", 0)
            for turn in (1, 2):
                worker.process(ponder(f"m-{turn}", diary=f"{number:03}", enqueued_at=NOW))
        worker.process(ponder("m-3", diary=f"{number:03}", enqueued_at=NOW))
    drive(store.close())
    return Folder(place)


def opened(folder: Folder) -> Table:
    return drive(connect(f"sqlite:///{folder.path}/store.db").table("games"))


def kept_from(table: Table) -> Mapping[str, int]:
    async def found() -> dict[str, int]:
        return {each.key: each.head.kept_from async for each in summaries(table)}

    return drive(found())


class Running:
    """A truncation that runs slowly in a separate process."""

    def __init__(self, folder: Folder) -> None:
        self._process = folder.start(*CUT, *SLOWLY)
        self._table = opened(folder)

    def end_amid(self, sent: signal.Signals) -> tuple[int, str]:
        """Send a signal when some streams are cut. Return the exit code and the output."""
        until = time.monotonic() + 300
        while not 0 < list(kept_from(self._table).values()).count(3) < STREAMS:
            assert self._process.poll() is None, self._process.communicate()
            assert time.monotonic() < until
            threading.Event().wait(0.1)
        if sent is signal.SIGINT:
            os.killpg(self._process.pid, sent)  # as a terminal does
        else:
            self._process.send_signal(sent)
        _, said = self._process.communicate(timeout=120)
        while self._is_at_work():  # workers of a killed driver finish their streams
            assert time.monotonic() < until
            threading.Event().wait(0.1)
        return self._process.returncode, said

    def _is_at_work(self) -> bool:
        """Return whether a process of the truncation's session is left."""
        return any(_session_of(each) == self._process.pid for each in Path("/proc").glob("[0-9]*"))


def _session_of(process: Path) -> int | None:
    try:
        return os.getsid(int(process.name))
    except ProcessLookupError:
        return None


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("sent", "code"),
    [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGKILL, -9)],
)
def test_a_truncation_that_was_ended_is_finished_by_the_next(folder, sent, code):
    # Given a truncation that is ended in the middle
    ended, said = Running(folder).end_amid(sent)
    assert ended == code, said
    table = opened(folder)
    cut = list(kept_from(table).values()).count(3)
    assert 0 < cut < STREAMS
    lease = drive(CleanUpLease(table, system_clock).find())

    # Then it has released the lease. After a kill, the next truncation is refused, and may take the lease over
    more = []
    if sent is signal.SIGKILL:
        assert lease is not None
        refused = folder.consistent(*CUT)
        assert (refused.returncode, lease.holder in refused.stderr) == (1, True)
        more = ["--take-over"]
    else:
        assert lease is None
        assert (
            said.splitlines()[-1] == "Stopped. All streams are intact: run the same command again to finish."
        )
    assert "Traceback" not in said

    # When it is run again
    done = folder.consistent(*CUT, *more)

    # Then it truncates all other streams
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert (document["streams"], document["cut"]) == (STREAMS, STREAMS - cut)
    assert set(kept_from(table).values()) == {3}
