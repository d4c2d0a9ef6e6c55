"""Names stand in stored keys and on the wire: they are stable, and hold nothing that a key could not."""

import pytest

from handlers import AppError, Handler, Message, State
from handlers.handler import handler_name
from handlers.message import message_name


class Data(State):
    pass


def test_a_message_is_named_after_its_class():
    class Rang(Message):
        pass

    assert message_name(Rang) == "Rang"


def test_a_message_keeps_its_name_when_its_class_is_renamed():
    class BellRang(Message, name="Rang"):
        pass

    assert message_name(BellRang) == "Rang"


def test_a_handler_is_named_after_its_class():
    class Bell(Handler[Data]):
        pass

    assert handler_name(Bell) == "Bell"


def test_a_handler_keeps_its_name_when_its_class_is_renamed():
    class BigBell(Handler[Data], name="Bell"):
        pass

    assert handler_name(BigBell) == "Bell"


def test_a_name_is_not_inherited():
    # A subclass with the name of its base would write to the streams of its base.
    class Bell(Handler[Data], name="TheBell"):
        pass

    class SmallBell(Bell):
        pass

    class Rang(Message, name="TheRang"):
        pass

    class RangTwice(Rang):
        pass

    assert handler_name(SmallBell) == "SmallBell"
    assert message_name(RangTwice) == "RangTwice"


@pytest.mark.parametrize("name", ["A", "_", "_a1", "a_B_9", "Z" * 200])
def test_a_name_of_letters_digits_and_underscores_is_taken(name):
    handler = type("Bell", (Handler,), {}, name=name)

    assert handler_name(handler) == name


@pytest.mark.parametrize("name", ["1st", "a-b", "a b", "a.b", "é", "a\n", "a/b", "a|b", "٣"])
def test_any_other_name_is_refused_for_handlers_and_messages(name):
    with pytest.raises(AppError, match="use ASCII letters, digits and _ only, and no digit first"):
        type("Bell", (Handler,), {}, name=name)
    with pytest.raises(AppError, match="use ASCII letters, digits and _ only, and no digit first"):
        type("Rang", (Message,), {}, name=name)


def test_a_handler_whose_class_has_no_ascii_name_says_so():
    with pytest.raises(AppError, match=r"The handler .*Größe is named 'Größe'"):

        class Größe(Handler[Data]):  # noqa: PLC2401 - what the test is about
            pass
