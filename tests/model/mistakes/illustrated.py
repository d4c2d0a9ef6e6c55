"""Mistakes of documents that state-based versions refer to: of their names, their registration and their clean-up."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from handlers import Context
from handlers.context import new_document
from runtime.algorithms.state_based.decide import Chain
from runtime.documents import protocol as sweeping
from runtime.documents.protocol import Documents, DocumentSweep, Registration, delete
from tests.model.mistakes.mistake import Mistake
from tests.model.mistakes.protocol import publish_first
from tests.model.scenarios.illustrated import SWEPT, illustrated
from tests.model.world import Bounds


def _one_name(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Chain, "_place", lambda *_: "same")


def _committed_before_prepared(patch: pytest.MonkeyPatch) -> None:
    async def commit_and_prepare(self: Any, drafts: Any, commit: Any) -> Any:
        registered = await self.register(drafts)
        committed = await self.commit_registered(registered, commit)
        await self.prepare(drafts)
        return committed

    patch.setattr(Documents, "commit", commit_and_prepare)


def _not_registered(patch: pytest.MonkeyPatch) -> None:
    async def prepare_and_commit(self: Any, drafts: Any, commit: Any) -> Any:
        await self.prepare(drafts)
        return await commit([])

    patch.setattr(Documents, "commit", prepare_and_commit)


def _still_registered_when_committed(patch: pytest.MonkeyPatch) -> None:
    async def commit_alone(_: object, __: object, commit: Any) -> Any:
        return await commit([])

    patch.setattr(Documents, "commit_registered", commit_alone)


def _refused_means_lost(patch: pytest.MonkeyPatch) -> None:
    async def delete_at_once(self: Any, registered: Registration, *, are_prepared: bool) -> None:
        await delete(self.store, registered)

    patch.setattr(Documents, "withdraw", delete_at_once)


def _swept_without_giving_up(patch: pytest.MonkeyPatch) -> None:
    async def delete_alone(self: Any, registration: Registration) -> None:
        await delete(self.store, registration)

    patch.setattr(DocumentSweep, "clean_up", delete_alone)


def _open_batches_not_asked(patch: pytest.MonkeyPatch) -> None:
    """Give attempts of batches up that are at work, and do not fence them."""
    _swept_without_giving_up(patch)
    patch.setattr(DocumentSweep, "_is_dead", lambda _, registration, __: registration.given_up_at is None)


def _forgotten_at_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sweeping, "FORGET_AFTER", timedelta())


def _reference_not_recorded(patch: pytest.MonkeyPatch) -> None:
    def store_document(self: Any, content: Any, *, media_type: str, name: str) -> Any:
        document = new_document(content(), media_type, f"{self._place}-{name}")
        self.documents.append(document)
        return document.reference

    patch.setattr(Context, "store_document", store_document)


_CALM, _CRASH, _LOSS = Bounds(), Bounds(1, 1), Bounds(1, losses=1, late_writes=False)
_ONE, _TWICE, _SWEPT = illustrated("x"), illustrated("x", copies=2), illustrated("x", swept=True)

MISTAKES = (
    Mistake("pictures: all attempts use one name", _one_name, _TWICE, _CALM, "Documented"),
    Mistake(
        "pictures: committed before they are prepared", _committed_before_prepared, _ONE, _CALM, "Documented"
    ),
    Mistake("pictures: announced before they are prepared", publish_first, _ONE, _CALM, "NoGhost"),
    Mistake("pictures: not registered", _not_registered, _ONE, _CRASH, "NoGarbage"),
    Mistake(
        "pictures: still registered when committed",
        _still_registered_when_committed,
        _SWEPT,
        _CALM,
        "Documented",
    ),
    Mistake(
        "pictures: a commit with a lost answer is taken for failed",
        _refused_means_lost,
        _ONE,
        _LOSS,
        "Documented",
    ),
    Mistake(
        "pictures: swept before their attempt is given up",
        _swept_without_giving_up,
        _SWEPT,
        _CALM,
        "Documented",
    ),
    Mistake(
        "pictures: swept beside an open batch, which is not given up",
        _open_batches_not_asked,
        SWEPT,
        _CALM,
        "Documented",
    ),
    Mistake(
        "pictures: an attempt is forgotten as soon as it is given up",
        _forgotten_at_once,
        _SWEPT,
        Bounds(1, losses=1),
        "NoGarbage",
    ),
    Mistake(
        "pictures: a replay makes the reference anew",
        _reference_not_recorded,
        _TWICE,
        _CRASH,
        "DoneWhenAcknowledged",
    ),
)
