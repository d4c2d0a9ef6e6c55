"""Documents: prepare, commit, publish. One of the outputs has a document, another one each time that it is rendered."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from hashlib import sha256

from eventstore import Row, Table
from runtime.algorithms.algorithm import Publish
from runtime.algorithms.documents.draft import DIGEST, DOCUMENT
from runtime.algorithms.documents.effects import EFFECT, TableEffects
from runtime.algorithms.documents.prepare_commit_publish import PrepareCommitPublish
from runtime.algorithms.outbox.entity import Entity
from runtime.messages.outcome import Output
from tests.model.contents import Snapshot
from tests.model.facts import Invariant, View
from tests.model.processes import Process
from tests.model.scenarios.entities import (
    OTHER,
    SCRIBE,
    STATES,
    EntityScenario,
    deliver,
    entity_in,
    holding,
    nothing_pending,
    sweep,
)
from tests.model.scenarios.state_based import PATIENCE
from tests.model.scribe import write

_NAME = "effects."


def make(table: Callable[[str], Table], publish: Publish, process: Process) -> PrepareCommitPublish:
    """Return the algorithm of the scribe, which draws its ids from its process."""
    return PrepareCommitPublish(
        table(STATES),
        TableEffects(table(OTHER)),
        SCRIBE,
        partial(_render, process),
        publish,
        clock=process.clock,
        new_id=process.draw_id,
        retries=PATIENCE,
    )


def documents(*lines: str, copies: int = 1, swept: bool = False) -> EntityScenario:
    """Return the scenario of some different lines, each delivered so many times, with a sweeper beside them or not."""
    jobs = [deliver(make, write(line), copies) for line in lines]
    name = f"documents: {', '.join(lines)}; {copies} cop{'ies' if copies > 1 else 'y'} each"
    if swept:
        return EntityScenario(f"{name}, and a sweeper", [*jobs, sweep(make)], INVARIANTS)
    return EntityScenario(name, jobs, INVARIANTS)


def _render(process: Process, output: Output) -> bytes | None:
    return process.draw() if output.type == "Wrote" else None


def _not_as_announced(view: View) -> str | None:
    """Say which document that a commit or a message announces is not there, or another one."""
    rows = _effects(view.snapshot)
    for output in (*_committed(view.snapshot), *view.facts.published):
        name = output.headers.get(DOCUMENT)
        if name is None:
            continue
        row = rows.get(_NAME + name)
        if row is None:
            return f"the document of {output.type} is announced, and is not there"
        if sha256(_content(row)).hexdigest() != output.headers[DIGEST]:
            return f"the document of {output.type} is another one than is announced"
    return None


def _seen_too_early(view: View) -> str | None:
    """Say which document can be seen that no commit has announced, or cannot though its message is published."""
    rows = _effects(view.snapshot)
    out = {_NAME + output.headers.get(DOCUMENT, "") for output in view.facts.published}
    committed = {_NAME + output.headers.get(DOCUMENT, "") for output in _committed(view.snapshot)}
    for key, row in rows.items():
        if row.properties["Published"] and key not in out | committed:
            return "a document can be seen that is not committed"
        if not row.properties["Published"] and key in out:
            return "a document cannot be seen though its message is published"
    return None


def _leftovers(view: View, swept: Snapshot, entity: Entity) -> str | None:
    hidden = [key for key, row in _effects(swept).items() if not row.properties["Published"]]
    if hidden:
        return f"{len(hidden)} documents are left that nobody can see"
    return nothing_pending(view, swept, entity)


def _committed(snapshot: Snapshot) -> Iterator[Output]:
    """Give the outputs that are committed and still to be sent."""
    entity = entity_in(snapshot)
    for entry in entity.outbox.values() if entity else ():
        yield from entry.outputs or ()


def _effects(snapshot: Snapshot) -> dict[str, Row]:
    partitions = snapshot.tables.get(OTHER, {})
    return {key: rows[EFFECT] for key, rows in partitions.items() if EFFECT in rows}


def _content(row: Row) -> bytes:
    content = row.properties["Content"]
    assert isinstance(content, bytes)
    return content


DOCUMENTED = Invariant("Documented", _not_as_announced)
NOT_SEEN_EARLY = Invariant("NotSeenEarly", _seen_too_early)
INVARIANTS = holding(make, _leftovers, DOCUMENTED, NOT_SEEN_EARLY)
