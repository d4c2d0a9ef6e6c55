"""Mistakes of documents that state-based versions refer to: of their names, their registration and their clean-up."""

from datetime import timedelta
from typing import Any

import pytest

from handlers import Context
from handlers.context import new_document
from runtime import documents as protocol
from runtime.algorithms.state_based.decide import Invoker
from runtime.documents import Documents, DocumentSweep, delete
from tests.model.mistakes.mistake import ALONE_CRASH, ALONE_LOSS, Mistakes, giving, instead_of
from tests.model.mistakes.state_based import publish_first
from tests.model.scenarios.pictures import SWEPT, illustrated
from tests.model.world import Bounds

MISTAKES = Mistakes()
mistake = MISTAKES.add

_ONE, _TWICE, _SWEPT = illustrated("x"), illustrated("x", copies=2), illustrated("x", swept=True)

mistake("pictures: all attempts use one name", "Documented", _TWICE)(giving(Invoker, "_place", "same"))


@mistake("pictures: committed before they are prepared", "Documented", _ONE)
@instead_of(Documents, "commit")
async def _(_: Any, self: Any, drafts: Any, commit: Any) -> Any:
    registered = await self.register(drafts)
    committed = await self.commit_registered(registered, commit)
    await self.prepare(drafts)
    return committed


mistake("pictures: announced before they are prepared", "NoGhost", _ONE)(publish_first)


@mistake("pictures: not registered", "NoGarbage", _ONE, ALONE_CRASH)
@instead_of(Documents, "commit")
async def _(_: Any, self: Any, drafts: Any, commit: Any) -> Any:
    await self.prepare(drafts)
    return await commit([])


@mistake("pictures: still registered when committed", "Documented", _SWEPT)
@instead_of(Documents, "commit_registered")
def _(_: Any, __: Any, ___: Any, commit: Any) -> Any:
    return commit([])


@mistake("pictures: a commit with a lost answer is taken for failed", "Documented", _ONE, ALONE_LOSS)
@instead_of(Documents, "withdraw")
async def _(_: Any, self: Any, registered: Any, **__: Any) -> None:
    await delete(self.store, registered)


@mistake("pictures: swept before their attempt is given up", "Documented", _SWEPT)
@instead_of(DocumentSweep, "clean_up")
async def _swept_without_giving_up(_: Any, self: Any, registration: Any) -> int:
    return await delete(self.store, registration)


@mistake("pictures: swept beside an open batch, which is not given up", "Documented", SWEPT)
def _(patch: pytest.MonkeyPatch) -> None:
    _swept_without_giving_up(patch)
    patch.setattr(DocumentSweep, "_is_dead", lambda _, registration, __: registration.given_up_at is None)


@mistake(
    "pictures: an attempt is forgotten as soon as it is given up", "NoGarbage", _SWEPT, Bounds(1, losses=1)
)
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(protocol, "FORGET_AFTER", timedelta())


@mistake("pictures: a replay makes the reference anew", "DoneWhenAcknowledged", _TWICE, ALONE_CRASH)
@instead_of(Context, "store_document")
def _(_: Any, self: Any, content: Any, *, media_type: str, name: str) -> Any:
    document = new_document(content(), media_type, f"{self._place}-{name}")
    self.documents.append(document)
    return document.reference
