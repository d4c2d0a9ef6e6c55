"""What prepare, commit, publish costs."""

from __future__ import annotations

from benchmarks.algorithms.counted_app import CountedApp
from benchmarks.algorithms.grid import Grid, amount
from benchmarks.algorithms.metered_table import MeteredTable
from benchmarks.algorithms.play import check_ends, publish, shots, starts, ticking_clock
from benchmarks.algorithms.spent import Spent
from eventstore import drive
from runtime import Envelope, Outcome, Output, Status
from runtime.algorithms.documents.draft import Render
from runtime.algorithms.documents.effects import TableEffects
from runtime.algorithms.documents.prepare_commit_publish import PrepareCommitPublish
from runtime.messages.parsing import prepare
from samples.shooting_range.shooting_range import ShootingRange

PART = "documents"
MESSAGES = range(50)


class DocumentPlay:
    """Games whose outputs come with documents."""

    def __init__(self, render: Render) -> None:
        self.table = MeteredTable()
        self.app = CountedApp(ShootingRange)
        (self._handler,) = self.app.handlers.values()
        self._algorithm = PrepareCommitPublish(
            self.table, TableEffects(self.table), self._handler, render, publish, clock=ticking_clock()
        )

    def process(self, messages: list[Envelope], status: Status) -> Spent:
        """Process messages and return what each of them cost."""
        before = Spent.until_now(self.table, self.app)
        for each in messages:
            prepared = prepare(self._handler, each.business_id, each)
            outcome = prepared if isinstance(prepared, Outcome) else drive(self._algorithm.process(prepared))
            check_ends([outcome.status], status)
        return Spent.until_now(self.table, self.app).each(before, len(messages))


def measure_documents() -> Grid:
    """Return the requests for messages without outputs, without documents and with one. Raises `DisagreementError`."""
    kinds = {
        "a message without outputs": (starts(MESSAGES), _nothing),
        "a message whose output has no document": (shots(MESSAGES), _nothing),
        "a message whose output has a document": (shots(MESSAGES), _document),
    }
    rows = [[title, *_requests(messages, render)] for title, (messages, render) in kinds.items()]
    return Grid(["requests", "new", "duplicate"], rows)


def _requests(messages: list[Envelope], render: Render) -> list[str]:
    play = DocumentPlay(render)
    new = play.process(messages, Status.PROCESSED)
    duplicate = play.process(messages, Status.DUPLICATE)
    return [amount(new.requests), amount(duplicate.requests)]


def _nothing(_output: Output) -> None:
    """Render no document."""


def _document(_output: Output) -> bytes:
    return b"Well done!"
