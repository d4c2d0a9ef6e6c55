"""What can be chosen for a target."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from runtime.publishing.publisher import Promise
from runtime.publishing.slices import CommittedOutput


@dataclass(frozen=True, kw_only=True)
class TargetOptions:
    """Options of all targets; each takes those that mean something to it.

    `names` are the tables, topics or paths for message types, where they are not the type's own. `rate` is how many
    requests a second all publishers together make at most, `timeout` is for one of them, `attempts` how often each is
    made. `headers` are sent along with each request and may hold secrets. `send` is the function that a target
    `module:function` names, and `strategy` what is promised of it. `window` is
    for how long a queue recognises duplicates.
    """

    names: Mapping[str, str] = field(default_factory=dict)
    batch_id: str = ""
    concurrency: int = 4
    rate: float | None = None
    timeout: timedelta = timedelta(seconds=30)
    attempts: int = 8
    headers: Mapping[str, str] = field(default_factory=dict)
    send: Callable[[CommittedOutput], object] | None = None
    strategy: Promise | None = None
    window: timedelta = timedelta(minutes=10)
