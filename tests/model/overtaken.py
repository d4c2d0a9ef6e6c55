"""Overtaken: delayed calls that can never have an effect any more, whenever they land. They are forgotten at once.

An ETag is never used twice, so a call that has one which is no longer there will always be refused; and a message that
is published is published, however often that is done.
"""

from __future__ import annotations

from eventstore import ANY_ETAG, Operation
from eventstore.keys import escape
from tests.model.calls import OUTSIDE, Call
from tests.model.contents import Rows, Snapshot
from tests.model.engine import Engine
from tests.model.world import World


class Overtaken:
    """Forgets delayed calls that are overtaken."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._refused: dict[tuple[int, int], bool] = {}

    def without(self, world: World) -> World:
        """Return a world without the delayed calls that are overtaken in it."""
        late = tuple([call for call in world.late if not self._is_overtaken(world, call)])
        return world._replace(late=late) if len(late) < len(world.late) else world

    def _is_overtaken(self, world: World, number: int) -> bool:
        call = self._engine.contents.calls[number]
        if call.target == OUTSIDE:
            return self._engine.chronicle.published(world.facts, number) == world.facts
        key = world.snapshot, number
        if key not in self._refused:
            self._refused[key] = _is_refused(self._engine.contents.snapshots[world.snapshot], call)
        return self._refused[key]


def _is_refused(snapshot: Snapshot, call: Call) -> bool:
    partition_key, operations = call.arguments
    rows = snapshot.tables.get(call.target, {}).get(escape(partition_key), {})
    return any(_is_gone(operation, rows) for operation in operations)


def _is_gone(operation: Operation, rows: Rows) -> bool:
    if operation.etag is None or operation.etag == ANY_ETAG:
        return False
    row = rows.get(escape(operation.row_key))
    return row is None or row.etag != operation.etag
