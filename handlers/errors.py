"""The errors of this package.

HandlersError
├── AppError                messages, states or handlers are declared wrongly; found when the app is constructed
├── CodecError              a state or message cannot be encoded or decoded
├── CaptureError            wrong use of `Context.capture`
├── DocumentError           wrong use of `Context.store_document`
├── InputStateChangedError  a handler mutated its input state
├── NondeterminismError     a handler under guard called a nondeterministic function
├── PublishError            `Context.publish` got something other than a message
│   └── OutputsTooLargeError  a handler published more than one message may
└── SpecError               wrong use of `handlers.testing`

Every error survives pickling: its constructor takes one sentence, that of `AppError` several.
"""

from __future__ import annotations


class HandlersError(Exception):
    """Root of all errors of this package."""


class AppError(HandlersError):
    """Raised when messages, states or handlers are declared wrongly; says what to change, of each problem."""

    def __str__(self) -> str:
        if len(self.args) == 1:
            return str(self.args[0])
        return "\n".join([f"There are {len(self.args)} problems:", *(f"- {each}" for each in self.args)])


class CodecError(HandlersError):
    """Raised when a state or message cannot be encoded or decoded, or changes by it."""


class CaptureError(HandlersError):
    """Raised when a name is captured twice, a replay captures a new one, or a value cannot be recorded."""


class DocumentError(HandlersError):
    """Raised when a document is too large or no bytes, or has a name or a media type that cannot be used."""


class InputStateChangedError(HandlersError):
    """Raised when a handler mutated its input state."""


class NondeterminismError(HandlersError):
    """Raised when a handler under guard calls a nondeterministic function; says what to use instead."""


class PublishError(HandlersError):
    """Raised when a handler publishes something other than a `Message`, or headers that are not text."""


class OutputsTooLargeError(PublishError):
    """Raised when a handler publishes more messages, or larger ones, than one message may; also if it catches this."""


class SpecError(HandlersError):
    """Raised when a test gives its handler something impossible; says what to change."""
