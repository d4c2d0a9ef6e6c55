"""The errors of this package.

HandlersError
├── AppError                invalid messages, states or handlers, found when the app is constructed
├── CodecError              a state or message cannot be encoded or decoded
├── CaptureError            incorrect use of `Context.capture`
├── DocumentError           incorrect use of `Context.store_document`
├── InputStateChangedError  a handler mutated its input state
├── NondeterminismError     a handler under guard called a nondeterministic function
├── PublishError            `Context.publish` got something other than a message
│   └── OutputsTooLargeError  a handler exceeded the limit of outputs for one message
└── SpecError               incorrect use of `handlers.testing`

Every error survives pickling. Its constructor takes one sentence; the constructor of `AppError` takes several.
"""


class HandlersError(Exception):
    """Base class of all errors of this package."""


class AppError(HandlersError):
    """Raised for invalid messages, states or handlers. `args` has a sentence for each problem."""

    def __str__(self) -> str:
        if len(self.args) == 1:
            return str(self.args[0])
        return "\n".join([f"There are {len(self.args)} problems:", *(f"- {each}" for each in self.args)])


class CodecError(HandlersError):
    """Raised when a state or message cannot be encoded or decoded, or would decode to a different value."""


class CaptureError(HandlersError):
    """Raised if a captured name is invalid or repeated, or new in a replay, or if a value cannot be recorded."""


class DocumentError(HandlersError):
    """Raised if a document is not bytes, has an invalid name or media type, or exceeds the limits for one message."""


class InputStateChangedError(HandlersError):
    """Raised when a handler mutated its input state."""


class NondeterminismError(HandlersError):
    """Raised when a handler under guard calls a nondeterministic function. The text names the alternative."""


class PublishError(HandlersError):
    """Raised when a handler publishes something other than a `Message`, or headers that are not text."""


class OutputsTooLargeError(PublishError):
    """Raised when outputs exceed the limits for one message. A handler that catches this error fails all the same."""


class SpecError(HandlersError):
    """Raised when a test cannot run as written, such as with invalid stubs. The text says how to correct the test."""
