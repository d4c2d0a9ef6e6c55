"""Mistakes about what a handler is given: ids, time, random numbers and captured values that differ in a replay."""

from __future__ import annotations

import random
from typing import Any
from uuid import UUID

import pytest

from handlers import Context
from handlers.context import _pack
from handlers.draws import Seed
from runtime.algorithms.state_based import decide
from runtime.algorithms.state_based.replay import Replayer
from tests.model.mistakes.mistake import Mistake
from tests.model.mistakes.replays import replay_with_other_versions
from tests.model.processes import Dependencies
from tests.model.scenarios.state_based import StateBasedScenario, deliver, messages
from tests.model.scribe import two_handlers, write
from tests.model.world import Bounds


def _compare_no_digests(patch: pytest.MonkeyPatch) -> None:
    """Take away the second defence: a replay that gives something else is not noticed."""
    patch.setattr(decide, "find_difference", lambda *_: None)


def _ids_of_the_process(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Seed, "guid", lambda *_: UUID(bytes=Dependencies.process.draw()[:16]))
    patch.setattr(Seed, "guid_text", lambda *_: str(UUID(bytes=Dependencies.process.draw()[:16])))


def _random_of_the_process(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Context, "random", property(lambda _: random.Random(Dependencies.process.draw())))


def _time_of_the_process(patch: pytest.MonkeyPatch) -> None:
    replay: Any = Replayer.replay
    replay_all: Any = Replayer.replay_all

    def at_another_time(known: Any) -> Any:
        return known._replace(record=known.record._replace(now=Dependencies.process.clock()))

    def one_at_another_time(self: Any, message_id: str, route: Any, message: Any, known: Any) -> Any:
        return replay(self, message_id, route, message, at_another_time(known))

    def all_at_another_time(self: Any, copies: Any) -> Any:
        return replay_all(self, [copy._replace(version=at_another_time(copy.version)) for copy in copies])

    patch.setattr(Replayer, "replay", one_at_another_time)
    patch.setattr(Replayer, "replay_all", all_at_another_time)


def _capture_anew(patch: pytest.MonkeyPatch) -> None:
    def capture(self: Any, name: str, function: Any) -> Any:
        self.captured[name] = _pack(name, value := function())
        return value

    patch.setattr(Context, "capture", capture)


def _latest_state(patch: pytest.MonkeyPatch) -> None:
    replay_with_other_versions(
        patch, lambda version, transaction: version._replace(before=transaction.before)
    )


def _ids_of_the_message_alone(patch: pytest.MonkeyPatch) -> None:
    seeded: Any = Seed.__init__
    patch.setattr(Seed, "__init__", lambda self, message_id, *_: seeded(self, message_id, "", ""))


_CRASH = Bounds(workers=1, crashes=1)
_ONE = messages("x")
_REPLAYED = (
    ("ids are not seeded by the message", _ids_of_the_process, "ConsistentOutput"),
    ("random numbers are not seeded by the message", _random_of_the_process, "ConsistentOutput"),
    ("the recorded time is not replayed", _time_of_the_process, "NoGhost"),
    ("captured values are not replayed", _capture_anew, "ConsistentOutput"),
    ("a duplicate is replayed on the latest state", _latest_state, "NoGhost"),
)


def _undetected(plant: Any) -> Any:
    def both(patch: pytest.MonkeyPatch) -> None:
        plant(patch)
        _compare_no_digests(patch)

    return both


MISTAKES = (
    *[Mistake(name, plant, _ONE, _CRASH, "DoneWhenAcknowledged") for name, plant, _ in _REPLAYED],
    *[
        Mistake(f"{name}, and digests are not compared", _undetected(plant), _ONE, _CRASH, breaks)
        for name, plant, breaks in _REPLAYED
    ],
    Mistake(
        "ids are seeded by the message id alone",
        _ids_of_the_message_alone,
        StateBasedScenario("1 message, 2 handlers", [deliver(write("x"), app=two_handlers)]),
        Bounds(workers=1),
        "ConsistentOutput",
    ),
)
