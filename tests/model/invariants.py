"""What must hold after every step of state-based processing, by the names that reports use."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator

from eventstore.header import EVENT, FIRST_VERSION, HEADER
from runtime.clock import to_datetime
from runtime.messages.outcome import Output
from runtime.versions.properties import number
from tests.model.facts import Facts, Invariant, View
from tests.model.scribe import OUTPUTS
from tests.model.versions import Place, Version, place_of


def _changed_twice(view: View) -> str | None:
    made = Counter((place.handler, version.message) for place, version in _versions(view.facts))
    for (handler, message), times in made.items():
        if times > 1:
            return f"{message} made {times} versions of {handler}"
    return None


def _ghost(view: View) -> str | None:
    """Say which published message speaks of a version that is not committed, or of another one than is."""
    committed = {(place.number, output): version for place, version, output in _promised(view.facts)}
    for output in view.facts.published:
        number, _ = place_of(output)
        version = committed.get((number, output.type))
        if version is None:
            return f"{output.type} of version {number} is published, which is not committed"
        for what, told, stored in _told(output, version):
            if told != stored:
                return f"{output.type} of version {number} was published with {what} {told}, but {stored} is stored"
    return None


def _lost(view: View) -> str | None:
    if not view.is_quiescent:
        return None
    published = {(place_of(output)[0], output.type) for output in view.facts.published}
    for place, version, output in _promised(view.facts):
        if (place.number, output) not in published:
            return f"{output} of version {place.number} by {version.message} was never published"
    return None


def _inconsistent(view: View) -> str | None:
    bodies: dict[str, Output] = {}
    ids: dict[tuple[int, str], str] = {}
    for output in view.facts.published:
        other = bodies.setdefault(output.message_id, output)
        if other != output:
            return f"two outputs have the id {output.message_id}: {other.body} and {output.body}"
        place = place_of(output)[0], output.type
        if ids.setdefault(place, output.message_id) != output.message_id:
            return f"{output.type} of version {place[0]} was published with two ids"
    return None


def _overwritten(view: View) -> str | None:
    """Say which version was lost, changed, or not made on the one before it."""
    last: dict[str, tuple[int, tuple[str, ...], int]] = {}
    for place, version in _versions(view.facts):
        number, lines, now = last.get(place.handler, (0, (), 0))
        if place.number != number + 1:
            return f"version {place.number} of {place.handler} was committed after version {number}"
        if version.before != lines:
            return f"version {place.number} was made on {version.before}, and the one before it is {lines}"
        expected = (*lines, version.message) if version.type != "Count" else lines
        if version.after != expected:
            return f"version {place.number} is {version.after} and should be {expected}"
        if version.now < now:
            return f"version {place.number} is older than the one before it"
        last[place.handler] = place.number, version.after, version.now
    for handler, (number, _, _) in last.items():
        if Place(handler, number) not in view.held:
            return f"version {number} of {handler} was committed, and is the newest, and is gone"
    return None


def _acknowledged_too_early(view: View) -> str | None:
    published = {(place_of(output)[0], output.type) for output in view.facts.published}
    made: dict[str, list[tuple[int, str]]] = {}
    for place, version, output in _promised(view.facts):
        made.setdefault(version.message, []).append((place.number, output))
    for done in view.facts.done:
        for message in done.result.messages:
            if message not in made:
                return f"{message} was acknowledged and made no version"
            missing = [output for place, output in made[message] if (place, output) not in published]
            if missing:
                return f"{message} was acknowledged before {' and '.join(missing)} was published"
    return None


def _disagreeing(view: View) -> str | None:
    """Say which attempts of one batch gave different statuses; those that found it finished gave none."""
    statuses: dict[str, tuple[str, ...]] = {}
    for done in view.facts.done:
        if (
            done.result.statuses
            and statuses.setdefault(done.job, done.result.statuses) != done.result.statuses
        ):
            return f"attempts of {done.job} gave {statuses[done.job]} and {done.result.statuses}"
    return None


def _left_behind(view: View) -> str | None:
    """Say which rows of events that were cut away are still there when all is done."""
    if not view.is_quiescent:
        return None
    for key, rows in view.snapshot.tables.get("states", {}).items():
        header = rows.get(HEADER)
        first = number(header.properties, FIRST_VERSION, 1) if header else 1
        below = [row for row in rows if row.startswith(EVENT) and int(row.removeprefix(EVENT)) < first]
        if below:
            return f"{' and '.join(below)} of {key} are still there, and {first} is the first that is kept"
    return None


def _versions(facts: Facts) -> Iterator[tuple[Place, Version]]:
    for place, value in facts.committed:
        if isinstance(place, Place):
            yield place, value


def _promised(facts: Facts) -> Iterator[tuple[Place, Version, str]]:
    """Give what each committed version has to publish."""
    for place, version in _versions(facts):
        for output in OUTPUTS[place.handler, version.type]:
            yield place, version, output


def _told(output: Output, version: Version) -> Iterator[tuple[str, object, object]]:
    """Give what a published message tells, and what its version says of it."""
    body, now = json.loads(output.body), to_datetime(version.now).isoformat()
    yield "the lines", body.get("lines", list(version.after)), list(version.after)
    yield "the page", body.get("page", len(version.after)), len(version.after)
    yield "the time", body.get("now", now), now
    yield "the time", output.enqueued_at, version.now


AT_MOST_ONE_STATE_CHANGE = Invariant("AtMostOneStateChange", _changed_twice)
NO_GHOST = Invariant("NoGhost", _ghost)
NO_LOST = Invariant("NoLost", _lost)
CONSISTENT_OUTPUT = Invariant("ConsistentOutput", _inconsistent)
NO_LOST_UPDATE = Invariant("NoLostUpdate", _overwritten)
NO_GARBAGE = Invariant("NoGarbage", _left_behind)
ATTEMPTS_AGREE = Invariant("AttemptsAgree", _disagreeing)
DONE_WHEN_ACKNOWLEDGED = Invariant("DoneWhenAcknowledged", _acknowledged_too_early)

ALL = (
    CONSISTENT_OUTPUT,
    AT_MOST_ONE_STATE_CHANGE,
    NO_LOST_UPDATE,
    NO_GHOST,
    DONE_WHEN_ACKNOWLEDGED,
    ATTEMPTS_AGREE,
    NO_LOST,
    NO_GARBAGE,
)
"""The first that is broken gives a violation its name."""
