"""What must hold after every step where handlers refuse messages, by the names that reports use."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from runtime.messages.outcome import Reason
from runtime.versions.dead_letters import Kind
from tests.model import invariants
from tests.model.facts import Invariant, View
from tests.model.letters import LetterPlace, Refused
from tests.model.versions import NOT_TOLD, Place, Version

REDRIVE = "redrive"
"""What the names of redrives begin with."""


def in_order(batch_id: str | None, *messages: str) -> Invariant:
    """Return that the versions of a batch are made in the order of its messages, however often it is attempted.

    None stands for all versions, where they do not say which batch made them.
    """
    return Invariant("InOrder", partial(_out_of_order, batch_id, messages))


def _out_of_order(batch_id: str | None, messages: Sequence[str], view: View) -> str | None:
    made = [version.message for _, version in _versions(view) if version.batch == batch_id]
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


def _lost(view: View) -> str | None:
    """Say which letter is gone, and its message took no effect. One beyond the limit goes with its batch."""
    made = {version.message for _, version in _versions(view)}
    for _, place, letter in _letters(view):
        is_gone = place not in view.held and letter.kind is not Kind.BEYOND_LIMIT
        if is_gone and letter.message not in made:
            return f"the letter of {letter.message} is gone, and it made no version"
    return None


def _processed_and_waiting(view: View) -> str | None:
    """Say which message took effect, and is still a letter."""
    made = {version.message for _, version in _versions(view)}
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
    for at, version in _versions(view):
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
    for at, version in _versions(view):
        for number, letter in parking.items():
            if since[number] < at and number < numbers.get(version.message, number + 1):
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


def _versions(view: View) -> Iterator[tuple[int, Version]]:
    for at, (place, value) in enumerate(view.facts.committed):
        if isinstance(place, Place):
            yield at, value


def _waiting(view: View) -> dict[LetterPlace, Refused]:
    return {
        place: letter
        for place, letter in view.held.items()
        if isinstance(place, LetterPlace) and letter.kind is Kind.WAITING
    }


REFUSED_FOR_GOOD = Invariant("RefusedForGood", _handled_again)
OF_LETTERS = (
    Invariant("KeptAsLetter", _unkept),
    Invariant("NoLetterLost", _lost),
    Invariant("ProcessedIsNoLetter", _processed_and_waiting),
)
ALL = (
    *invariants.ALL,
    REFUSED_FOR_GOOD,
    Invariant("AsRecorded", _not_as_recorded),
    *OF_LETTERS,
    Invariant("NoOvertaking", _overtaken),
    Invariant("NeverTooLate", _redriven_too_late),
)
