"""Mistakes of prepare - commit - publish, and of its register and clean-up."""

from __future__ import annotations

from typing import Any

import pytest

from runtime.algorithms.documents.effects import TableEffects
from runtime.algorithms.documents.prepare_commit_publish import PrepareCommitPublish
from tests.model.mistakes.mistake import Mistake
from tests.model.mistakes.outboxes import store_whatever_is_there
from tests.model.scenarios.documents import documents
from tests.model.world import Bounds


def _one_name(patch: pytest.MonkeyPatch) -> None:
    begin: Any = PrepareCommitPublish.__init__

    def begin_with_one_id(self: Any, *given: Any, **named: Any) -> None:
        begin(self, *given, **{**named, "new_id": lambda: "same"})

    patch.setattr(PrepareCommitPublish, "__init__", begin_with_one_id)


def _published_before_commit(patch: pytest.MonkeyPatch) -> None:
    commit: Any = PrepareCommitPublish.commit

    async def publish_and_commit(self: Any, entity: Any, draft: Any) -> Any:
        for effect, _ in draft.documents:
            await self.effects.publish(effect.name)
        return await commit(self, entity, draft)

    patch.setattr(PrepareCommitPublish, "commit", publish_and_commit)


def _committed_before_prepared(patch: pytest.MonkeyPatch) -> None:
    commit: Any = PrepareCommitPublish.commit
    prepare: Any = PrepareCommitPublish.prepare

    async def prepare_later(*_: object) -> None:
        """Leave it until after the commit."""

    async def commit_and_prepare(self: Any, entity: Any, draft: Any) -> Any:
        committed = await commit(self, entity, draft)
        await prepare(self, draft, [])
        return committed

    patch.setattr(PrepareCommitPublish, "prepare", prepare_later)
    patch.setattr(PrepareCommitPublish, "commit", commit_and_prepare)


def _not_registered(patch: pytest.MonkeyPatch) -> None:
    async def register(_: Any, entity: Any, __: Any) -> Any:
        return entity

    patch.setattr(PrepareCommitPublish, "register", register)


def _neither_registered_nor_collected(patch: pytest.MonkeyPatch) -> None:
    async def collect(_: Any) -> None:
        """Look for nothing that no entity knows."""

    _not_registered(patch)
    patch.setattr(PrepareCommitPublish, "collect", collect)


def _never_published(patch: pytest.MonkeyPatch) -> None:
    async def publish_nothing(*_: object) -> None:
        """Leave it hidden."""

    patch.setattr(TableEffects, "publish", publish_nothing)


def _refused_means_lost(patch: pytest.MonkeyPatch) -> None:
    """Delete what was prepared as soon as the commit fails, whatever became of it."""
    commit: Any = PrepareCommitPublish.commit

    async def commit_or_delete(self: Any, entity: Any, draft: Any) -> Any:
        try:
            return await commit(self, entity, draft)
        except Exception:
            for effect, _ in draft.documents:
                await self.effects.delete(effect)
            raise

    patch.setattr(PrepareCommitPublish, "commit", commit_or_delete)


_CALM, _CRASH, _LOSS = Bounds(), Bounds(1, 1), Bounds(1, losses=1, late_writes=False)
_ONE, _TWICE = documents("x"), documents("x", copies=2)

MISTAKES = (
    Mistake("documents: all attempts use one name", _one_name, _TWICE, _CALM, "Documented"),
    Mistake("documents: published before the commit", _published_before_commit, _ONE, _CALM, "NotSeenEarly"),
    Mistake(
        "documents: committed before they are prepared", _committed_before_prepared, _ONE, _CALM, "Documented"
    ),
    Mistake("documents: not registered", _not_registered, documents("x", swept=True), _CALM, "Documented"),
    Mistake(
        "documents: neither registered nor collected",
        _neither_registered_nor_collected,
        _ONE,
        _CRASH,
        "NoGarbage",
    ),
    Mistake("documents: never published", _never_published, _ONE, _CALM, "NotSeenEarly"),
    Mistake(
        "documents: a commit with a lost answer is taken for failed",
        _refused_means_lost,
        _ONE,
        _LOSS,
        "Documented",
    ),
    Mistake(
        "documents: the entity is stored without checking the ETag",
        store_whatever_is_there,
        documents("x", "y"),
        _CALM,
        "NoLostUpdate",
    ),
)
