"""Which threads run a handler at this moment, and what the handlers did there that they must not."""

from __future__ import annotations

import functools
from collections.abc import Callable
from threading import get_ident
from typing import Any

from handlers.errors import NondeterminismError

running: dict[int, list[NondeterminismError]] = {}
"""The threads that run a handler under guard, each with what it did that it must not. Most often empty."""


def guard_method(method: Callable[..., Any], keep_up: Callable[[], None]) -> Callable[..., Any]:
    """Return a handler's method under guard, which raises the first violation even if the method catches it.

    `keep_up` is called before each call, to mend what others changed since the last one.
    """

    @functools.wraps(method)
    def run(state: Any, message: Any, context: Any) -> Any:  # noqa: ANN401 - a handler's own
        keep_up()
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
