"""Publishing: a message, with text for headers, in the order in which the handler gave it."""

import pytest

from handlers import CodecError, Context, Message, PublishError, State


class Rang(Message, name="BellRang"):
    times: int = 1
    listeners: frozenset[str] = frozenset()


def context(headers: dict[str, str] | None = None) -> Context:
    return Context("Bell", "east", "m-1", 0, headers)


def test_outputs_stand_in_their_order_with_name_and_body():
    publishing = context()

    publishing.publish(Rang(times=2))
    publishing.publish(Rang(listeners=frozenset({"b", "a"})))

    assert [(output.type, output.body) for output in publishing.published] == [
        ("BellRang", b'{"times":2,"listeners":[]}'),
        ("BellRang", b'{"times":1,"listeners":["a","b"]}'),
    ]


def test_headers_go_out_with_the_message():
    publishing = context({"trace": "t-1"})

    publishing.publish(Rang(), headers={"colour": "red"})
    publishing.publish(Rang(), headers=publishing.headers)
    publishing.publish(Rang())

    assert [output.headers for output in publishing.published] == [{"colour": "red"}, {"trace": "t-1"}, {}]


def test_headers_that_are_changed_afterwards_go_out_as_they_were():
    publishing = context()
    headers = {"colour": "red"}
    publishing.publish(Rang(), headers=headers)

    headers["colour"] = "blue"

    assert publishing.published[0].headers == {"colour": "red"}


@pytest.mark.parametrize("thing", [State(), "Rang", None, Rang])
def test_what_is_no_message_is_an_error(thing):
    with pytest.raises(PublishError, match=r"^publish\(\) takes a Message, not a "):
        context().publish(thing)


@pytest.mark.parametrize("headers", [{"times": 1}, {1: "one"}, {"none": None}, {"half": "\ud800"}])
def test_headers_that_are_no_text_are_an_error(headers):
    publishing = context()

    with pytest.raises(PublishError, match=r"^The headers of a BellRang must be str, valid as UTF-8, not "):
        publishing.publish(Rang(), headers=headers)

    assert publishing.published == []


def test_a_message_that_cannot_be_encoded_is_an_error_and_takes_no_id():
    publishing = context()

    with pytest.raises(CodecError, match=r"^Rang has no field tmies.$"):
        publishing.publish(Rang().model_copy(update={"tmies": 3}))
    publishing.publish(Rang())

    other = context()
    other.publish(Rang())
    assert publishing.published == other.published
