"""An app takes handlers whose names, and those of their messages, are told apart."""

import pytest

from handlers import App, AppError, Context, Handler, Message, State, handles


class Rang(Message):
    tower: str


class Data(State):
    rings: int = 0


class Bell(Handler[Data]):
    @handles(by="tower")
    def rang(self, state: Data, message: Rang, context: Context) -> Data:
        return state


class OtherBell(Handler[Data], name="Bell"):
    @handles(by="tower")
    def rang(self, state: Data, message: Rang, context: Context) -> Data:
        return state


class OtherRang(Message, name="Rang"):
    tower: str


class Clock(Handler[Data]):
    @handles(by="tower")
    def rang(self, state: Data, message: OtherRang, context: Context) -> Data:
        return state


def test_two_handlers_of_one_name_are_refused():
    with pytest.raises(
        AppError, match=r"^Two handlers are named Bell and would share their streams: give one of them"
    ):
        App(Bell, OtherBell)


def test_the_same_handler_twice_is_refused():
    with pytest.raises(AppError, match=r"^Two handlers are named Bell"):
        App(Bell, Bell)


def test_two_message_types_of_one_name_are_refused():
    with pytest.raises(AppError, match=r"^Two message types are named Rang: give one of them another name.$"):
        App(Bell, Clock)


def test_one_message_type_goes_to_several_handlers():
    class Watch(Handler[Data]):
        @handles(by="tower")
        def rang(self, state: Data, message: Rang, context: Context) -> Data:
            return state

    app = App(Bell, Watch)

    assert [route.handler for route in app.routes("Rang")] == ["Bell", "Watch"]
    assert app.routes("Unheard") == ()


def test_an_app_without_handlers_is_refused():
    with pytest.raises(AppError, match=r"^An App needs at least one handler: App\(ShootingRange\).$"):
        App()


@pytest.mark.parametrize("thing", [Rang, Bell(), "Bell", None])
def test_what_is_no_handler_class_is_refused(thing):
    with pytest.raises(AppError, match=r"^App takes handler classes, not "):
        App(thing)
