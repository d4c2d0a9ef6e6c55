"""Bells in towers: a handler that counts how often its bell rang, which tests vary to be newer code."""

from handlers import Context, Handler, Message, State, handles
from runtime.messages.envelope import Envelope
from tests.unit.runtime.diary import delivery


class Rang(Message):
    tower: str
    loud: bool = False


class Heard(Message):
    rings: int


class Rings(State):
    rings: int = 0
    name: str = ""


class Bell(Handler[Rings]):
    @handles(by="tower")
    def rang(self, state: Rings, message: Rang, context: Context) -> Rings:
        context.publish(Heard(rings=state.rings + 1))
        return state.model_copy(update={"rings": state.rings + 1})


class OtherBell(Handler[Rings], name="Bell"):
    @handles(by="tower")
    def rang(self, state: Rings, message: Rang, context: Context) -> Rings:
        context.publish(Heard(rings=state.rings + 1))
        return state.model_copy(update={"rings": state.rings + (2 if state.rings else 1)})


class RevisedBell(Bell, name="Bell"):
    @handles(by="tower", revision=2)
    def rang_again(self, state: Rings, message: Rang, context: Context) -> Rings:
        context.publish(Heard(rings=state.rings + 10))
        return state.model_copy(update={"rings": state.rings + 10})


class ForgetfulBell(Handler[Rings], name="Bell"):
    @handles(by="tower", revision=2)
    def rang(self, state: Rings, message: Rang, context: Context) -> Rings:
        return state


class WidenedRings(State):
    """As `Rings`, with a new field: another shape under the same schema version."""

    rings: int = 0
    name: str = ""
    metal: str = "bronze"


class WidenedBell(Handler[WidenedRings], name="Bell"):
    @handles(by="tower")
    def rang(self, state: WidenedRings, message: Rang, context: Context) -> WidenedRings:
        context.publish(Heard(rings=state.rings + 1))
        return state.model_copy(update={"rings": state.rings + 1})


def rang(*ids: str, message_type: str = "Rang", body: object = None, **fields: object) -> list[Envelope]:
    given = {"tower": "east"} if body is None else body
    return [delivery(message_id, message_type, given, **fields) for message_id in ids]
