"""The public API: messages, states, handlers, apps and the context. Pure: no I/O and no clock.

A handler is a class of pure methods, (state, message, context) -> next state:

    class ShootingRange(Handler[ShootingRangeData]):
        @handles(by="game_id")
        def fire_at(self, state: ShootingRangeData, message: FireAt, context: Context) -> ShootingRangeData: ...

    app = App(ShootingRange)
"""

from handlers.app import App, Handler, handles
from handlers.context import Context, DocumentReference, Published
from handlers.errors import (
    AppError,
    CaptureError,
    CodecError,
    DocumentError,
    HandlersError,
    InputStateChangedError,
    NondeterminismError,
    OutputsTooLargeError,
    PublishError,
    SpecError,
)
from handlers.message import Message, State

__all__ = [
    "App",
    "AppError",
    "CaptureError",
    "CodecError",
    "Context",
    "DocumentError",
    "DocumentReference",
    "Handler",
    "HandlersError",
    "InputStateChangedError",
    "Message",
    "NondeterminismError",
    "OutputsTooLargeError",
    "PublishError",
    "Published",
    "SpecError",
    "State",
    "handles",
]
