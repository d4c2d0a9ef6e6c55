"""Local states: what a run knows at a moment, which is less than all that it was answered.

Two moments in the same local state, of runs with the same number that have drawn as often, are one: the same is asked
from there on, whatever came before. What belongs to a local state is said in `frames.py`.
"""

from __future__ import annotations

from collections.abc import Hashable

from eventstore import StoreUnavailableError
from tests.model.contents import Contents
from tests.model.histories import Moment
from tests.model.shapes import Shapes
from tests.model.world import Bounds


class LocalStates:
    """Gives moments their local states."""

    def __init__(self, contents: Contents, shapes: Shapes, bounds: Bounds) -> None:
        self._contents = contents
        self._shapes = shapes
        self._cuts = bounds.cuts > 0

    def of(self, moment: Moment, before: Moment | None) -> Hashable:
        """Return the local state at a moment after another; note its shape, and whether the run has acted before it."""
        moment.has_acted = before is not None and self._has_acted(before, moment.answer)
        if moment.coroutine is None:
            moment.shape = self._shapes.of(moment.job, moment.has_acted, moment.result, moment.error)
            return moment.run, moment.shape
        started, process = moment.coroutine
        moment.shape = self._shapes.of(moment.job, moment.has_acted, started, process)
        return moment.run, moment.shape, process.drawn

    def _has_acted(self, before: Moment, answer: int) -> bool:
        """Say whether the call of a moment may have changed something: it was not refused, and may do so at all.

        After a barrier it is said of the call before that: a run does not die in between, see `urgency.py`. It makes a
        difference itself when power can be cut.
        """
        call, error = self._contents.calls[before.call], self._contents.answers[answer].error
        if call.is_barrier:
            return self._cuts or before.has_acted
        return call.changes and (error is None or isinstance(error, StoreUnavailableError))
