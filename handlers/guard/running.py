"""The threads that run a handler now, and the violations of these handlers."""

from __future__ import annotations

import functools
from collections.abc import Callable
from threading import get_ident
from typing import Any

from handlers.errors import NondeterminismError

running: dict[int, list[NondeterminismError]] = {}
"""The violations by thread that runs a handler under guard; mostly empty."""


def guard_method(method: Callable[..., Any], before: Callable[[], None]) -> Callable[..., Any]:
    """Return a handler's method under guard: it raises its first violation even if the method catches it.

    `before` is called before each call.
    """

    @functools.wraps(method)
    def run(state: Any, message: Any, context: Any) -> Any:  # noqa: ANN401 - a handler's own
        before()
        thread = get_ident()
        violations: list[NondeterminismError] = []
        running[thread] = violations
        try:
            return method(state, message, context)
        finally:
            del running[thread]
            if violations:
                raise violations[0]

    return run
