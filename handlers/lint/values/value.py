"""A value of which nothing is known but its owner: the base of all other values."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum


class Owner(Enum):
    """What a shared value belongs to; a value without an owner was created by the call that is followed."""

    STATE = "state"
    MESSAGE = "message"
    MODULE = "module"
    CLASS = "class"
    DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class Value:
    """Any value; only its owner may be known."""

    owner: Owner | None = field(default=None, kw_only=True)


UNKNOWN = Value()
