"""The guard: a handler that calls a clock, a random generator or I/O, other than through its context, fails.

`guarded(app)` returns the app with its handlers under guard. When a handler calls `datetime.now()`, `uuid4()`,
`open()` or the like, `NondeterminismError` is raised, which names the call, the line and what to use instead; a
handler that catches it fails all the same. Only threads that run a handler are affected, and only while they do. The
guard finds mistakes; it is not a sandbox.
"""

from handlers.guard.app import guarded

__all__ = ["guarded"]
