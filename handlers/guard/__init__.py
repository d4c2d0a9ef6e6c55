"""The guard: while a handler runs, it cannot look at the clock, at chance or at the outside but through its context.

`guarded(app)` returns the app with its handlers under guard. Where a handler calls `datetime.now()`, `uuid4()`,
`open()` or the like, `NondeterminismError` is raised, which names the call, the line and what to use instead; also
when the handler catches it. Only threads that run a handler are concerned, and only while they do. The guard
finds mistakes; it is no sandbox.
"""

from handlers.guard.app import guarded

__all__ = ["guarded"]
