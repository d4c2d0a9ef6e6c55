"""What can be wrong with handlers, in one place.

HandlersError
├── AppError                what was given to `App` cannot work; found at import, with one clear sentence
├── CodecError              a value does not survive being stored
├── CaptureError            `Context.capture` was used wrongly
├── InputStateChangedError  a handler changed the state that it was given
├── NondeterminismError     a handler under guard looked at the clock, at chance or at the outside
├── PublishError            what was given to `Context.publish` is no message
└── SpecError               what was asked of `handlers.testing` cannot be

Every error survives pickling: its constructor takes one sentence.
"""

from __future__ import annotations


class HandlersError(Exception):
    """Root of all errors of this package."""


class AppError(HandlersError):
    """Raised when messages, states or handlers are declared in a way that cannot work."""


class CodecError(HandlersError):
    """Raised when a state or message cannot be encoded, or comes back as something else."""


class CaptureError(HandlersError):
    """Raised when a name is captured twice, or a captured value is not plain data."""


class InputStateChangedError(HandlersError):
    """Raised when the state given to a handler was not the same after the call."""


class NondeterminismError(HandlersError):
    """Raised when a handler under guard calls what gives something else each time; says what to use instead."""


class PublishError(HandlersError):
    """Raised when something other than a `Message` is published."""


class SpecError(HandlersError):
    """Raised when a specification of a test is given what its handler cannot have; says what to change."""
