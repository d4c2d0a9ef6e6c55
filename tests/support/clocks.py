"""Clocks that are told the time. They pickle, so that Spark's workers have the same one."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from runtime.clock import to_microseconds


@dataclass(frozen=True)
class FrozenClock:
    microseconds: int

    @classmethod
    def at(cls, text: str) -> FrozenClock:
        return cls(to_microseconds(datetime.fromisoformat(text).replace(tzinfo=UTC)))

    def __call__(self) -> int:
        return self.microseconds
