"""A bell in a tower: the domain of these tests."""

from typing import Any

from handlers import Context, Handler, Message, State, handles


class Rang(Message):
    tower: str


class Data(State):
    rings: int = 0


def bell(
    *messages: type[Message], state: type[State] = Data, by: str = "tower", name: str = "Bell"
) -> type[Handler[Any]]:
    """Return a handler with a method for each of these messages, by default for `Rang`."""

    class Made(Handler[state], name=name):  # type: ignore[valid-type]
        pass

    for number, message_type in enumerate(messages or (Rang,)):

        def take(self, state, message, context):
            return state

        take.__annotations__ = {"state": state, "message": message_type, "context": Context}
        take.__qualname__ = f"{name}.rang"
        setattr(Made, f"take_{number}", handles(by=by)(take))
    return Made
