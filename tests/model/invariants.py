"""What must hold after every step, by the names that reports use; and what more where handlers refuse messages."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial

from eventstore.header import EVENT, FIRST_VERSION, HEADER
from runtime.clock import to_datetime
from runtime.messages.outcome import Output, Reason
from runtime.versions.dead_letter_rows import LetterState
from runtime.versions.properties import number
from tests.model.book import NOT_TOLD, OUTPUTS, LetterPlace, Place, Refused, Version, place_of
from tests.model.facts import Facts, Invariant, View


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


REDRIVE = "redrive"
"""What the names of redrives begin with."""


def in_order(batch_id: str | None, *messages: str) -> Invariant:
    """Return that the versions of a batch are made in the order of its messages, however often it is attempted.

    None stands for all versions, where they do not say which batch made them.
    """
    return Invariant("InOrder", partial(_out_of_order, batch_id, messages))


def _out_of_order(batch_id: str | None, messages: Sequence[str], view: View) -> str | None:
    made = [version.message for _, version in _numbered_versions(view) if version.batch == batch_id]
    if made == sorted(made, key=messages.index):
        return None
    return f"{batch_id or 'the batch'} handled {', '.join(made)}, and its order is {', '.join(messages)}"


def _unkept(view: View) -> str | None:
    """Say which refused delivery is no letter, and was none. What is redriven is one, whatever its body is now."""
    kept = {(letter.message, letter.content) for _, _, letter in _letters(view)}
    redriven = {message for message, _ in kept}
    for done in view.facts.done:
        for delivered in done.result.refused:
            is_kept = delivered.message in redriven if done.job.startswith(REDRIVE) else delivered in kept
            if not is_kept:
                return f"{delivered.message} was refused, and is no letter"
    return None


def _not_as_recorded(view: View) -> str | None:
    """Say which attempt of a batch gave another outcome than a letter that the batch left behind."""
    left = {(letter.batch, letter.message) for _, _, letter in _letters(view)}
    for done in view.facts.done:
        for message in done.result.messages:
            if (done.job, message) in left:
                return f"{done.job} refused {message}, and another attempt of it says that it was handled"
    return None


def _letter_lost(view: View) -> str | None:
    """Say which letter is gone, and its message took no effect. One beyond the limit goes with its batch."""
    made = {version.message for _, version in _numbered_versions(view)}
    for _, place, letter in _letters(view):
        is_gone = place not in view.held and letter.state is not LetterState.BEYOND_LIMIT
        if is_gone and letter.message not in made:
            return f"the letter of {letter.message} is gone, and it made no version"
    return None


def _processed_and_waiting(view: View) -> str | None:
    """Say which message took effect, and is still a letter."""
    made = {version.message for _, version in _numbered_versions(view)}
    for letter in _waiting(view).values():
        if letter.message in made and letter.reason is not Reason.ID_REUSED:
            return f"{letter.message} made a version, and still waits as a letter"
    return None


def _handled_again(view: View) -> str | None:
    """Say which message took effect after it was refused, and nobody redrove it."""
    refused = {
        (letter.message, content): at
        for at, _, letter in _letters(view)
        for content in (letter.content, NOT_TOLD)
    }
    for at, version in _numbered_versions(view):
        is_redrive = (version.batch or "").startswith(REDRIVE)
        if not is_redrive and refused.get((version.message, version.content), at) < at:
            return f"{version.message} was refused, and made a version all the same"
    return None


def _overtaken(view: View) -> str | None:
    """Say which new message took effect while a letter that parks the stream waits before it."""
    since, numbers = {}, {}
    for at, place, letter in reversed(list(_letters(view))):
        since[place.number] = at
        numbers[letter.message] = place.number
    parking = {place.number: letter for place, letter in _waiting(view).items() if letter.parks}
    for at, version in _numbered_versions(view):
        for parked, letter in parking.items():
            if since[parked] < at and parked < numbers.get(version.message, parked + 1):
                return f"{version.message} overtook {letter.message}, which is parked"
    return None


def _redriven_too_late(view: View) -> str | None:
    for done in view.facts.done:
        if done.job.startswith(REDRIVE) and done.result.too_late:
            return f"{done.result.too_late[0]} waited as a letter, and was redriven too late"
    return None


def _letters(view: View) -> Iterator[tuple[int, LetterPlace, Refused]]:
    for at, (place, value) in enumerate(view.facts.committed):
        if isinstance(place, LetterPlace):
            yield at, place, value


def _numbered_versions(view: View) -> Iterator[tuple[int, Version]]:
    for at, (place, value) in enumerate(view.facts.committed):
        if isinstance(place, Place):
            yield at, value


def _waiting(view: View) -> dict[LetterPlace, Refused]:
    return {
        place: letter
        for place, letter in view.held.items()
        if isinstance(place, LetterPlace) and letter.state is LetterState.WAITING
    }


REFUSED_FOR_GOOD = Invariant("RefusedForGood", _handled_again)
OF_LETTERS = (
    Invariant("KeptAsLetter", _unkept),
    Invariant("NoLetterLost", _letter_lost),
    Invariant("ProcessedIsNoLetter", _processed_and_waiting),
)
WITH_REFUSALS = (
    *ALL,
    REFUSED_FOR_GOOD,
    Invariant("AsRecorded", _not_as_recorded),
    *OF_LETTERS,
    Invariant("NoOvertaking", _overtaken),
    Invariant("NeverTooLate", _redriven_too_late),
)
