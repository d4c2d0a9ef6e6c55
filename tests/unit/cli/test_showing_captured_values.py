"""`consistent show` shows captured values as the handler saw them, whatever their type."""

import json
from copy import copy
from functools import partial

import pytest

from handlers import App, Context, Handler, Message, State, handles
from runtime import Envelope, Processor
from tests.unit.cli.stores import TABLE, on_store

VALUES = {
    "nothing": (None, None),
    "yes": (True, True),
    "small": (49, 49),
    "negative": (-1, -1),
    "large": (2**64 - 1, 2**64 - 1),
    "float": (0.25, 0.25),
    "not a number": (float("nan"), {"float": "nan"}),
    "infinite": (float("-inf"), {"float": "-inf"}),
    "text": ("spring is 1", "spring is 1"),
    "number as text": ("49", "49"),
    "empty": ("", ""),
    "bytes": (b"\x00\xff", {"base64": "AP8="}),
    "list": ([1, "a", b"a", [None]], [1, "a", {"base64": "YQ=="}, [None]]),
    "tuple": ((1, 2), [1, 2]),
    "dict": ({"rate": 1.5, "of": {"day": 3}}, {"rate": 1.5, "of": {"day": 3}}),
    "dict by number": ({1: "one", "1": "text"}, {"items": [[1, "one"], ["1", "text"]]}),
}


class Asked(Message):
    about: str


class Nothing(State):
    pass


class Oracle(Handler[Nothing]):
    @handles(by="about")
    def asked(self, state: Nothing, message: Asked, context: Context) -> Nothing:
        for name, (value, _) in VALUES.items():
            context.capture(name, partial(copy, value))
        return state


@pytest.fixture
def shown(consistent, tmp_path):
    url = f"sqlite:///{tmp_path}/store.db"

    async def ask(table):
        async def published(_):
            raise AssertionError

        await Processor(App(Oracle), table, published).process(
            Envelope.of("m1", "Asked", '{"about": "weather"}')
        )

    on_store(url, ask)
    arguments = ["show", "--store", url, "--table", TABLE, "Oracle", "weather", "--version", "1"]
    return lambda *more: consistent(*arguments, *more)


def test_each_value_is_in_the_document_as_it_was_captured(shown):
    captured = shown("--json").document["captured"]

    expected = {name: value for name, (_, value) in VALUES.items()}
    assert json.dumps(captured) == json.dumps(expected)  # 1 and true are equal in Python


def test_the_document_is_json_to_the_letter(shown):
    def refused(constant):
        raise AssertionError(constant)

    assert json.loads(shown("--json").out, parse_constant=refused)


def test_people_see_the_same(shown):
    said = "".join(shown().out.split())

    for name, (_, value) in VALUES.items():
        assert "".join(f'"{name}": {json.dumps(value)}'.split()) in said
