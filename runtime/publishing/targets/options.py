"""What can be chosen for a target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta


@dataclass(frozen=True, kw_only=True)
class TargetOptions:
    """Options of all targets; each takes those that mean something to it.

    `names` are the tables, topics or paths for message types, where they are not the type's own. `rate` is how many
    requests a second all publishers together make at most, `timeout` is for one of them, `attempts` how often each is
    made. `headers` are sent along with each request and may hold secrets.
    """

    names: Mapping[str, str] = field(default_factory=dict)
    batch_id: str = ""
    concurrency: int = 4
    rate: float | None = None
    timeout: timedelta = timedelta(seconds=30)
    attempts: int = 8
    headers: Mapping[str, str] = field(default_factory=dict)
