"""A dead letter of a handler's error names the line of the user's code, not of a package or of Python's own."""

import asyncio
import json
from pathlib import Path

import pytest

from eventstore import connect
from handlers import App, Context, Handler, Message, State, handles
from runtime import Envelope, Processor, Status

FILE = "test_errors_of_handlers_name_the_users_line.py"


class Asked(Message):
    account: str
    what: str


class Total(State):
    total: int = 0


def helper(text: str) -> None:
    json.loads(text)  # decoding


class Account(Handler[Total]):
    @handles(by="account")
    def asked(self, state: Total, message: Asked, context: Context) -> Total:
        match message.what:
            case "assign":
                state.total = 3  # type: ignore[misc] # assigning
            case "copy":
                return Total.model_validate({"total": "many"})  # copying
            case "draw":
                context.random.gauss(0, 1)  # drawing
            case "publish":
                context.publish("nothing")  # type: ignore[arg-type] # publishing
            case "decode":
                helper("{")
        return state


def line_of(comment: str) -> int:
    lines = Path(__file__).read_text().splitlines()
    (number,) = [number for number, line in enumerate(lines, 1) if line.endswith(f"# {comment}")]
    return number


@pytest.mark.parametrize(
    ("what", "comment", "begins"),
    [
        (
            "assign",
            "assigning",
            "ValidationError: Total: total: Instance is frozen; return a changed copy: model_copy",
        ),
        ("copy", "copying", "ValidationError: Total: total: Input should be a valid integer"),
        ("draw", "drawing", ""),
        ("publish", "publishing", "publish() takes a Message, not a str."),
        ("decode", "decoding", "JSONDecodeError: Expecting property name"),
    ],
)
def test_the_line_is_the_users(what, comment, begins):
    async def publish(_):
        raise AssertionError

    async def ask():
        async with connect("memory:") as store:
            processor = Processor(App(Account), await store.table("accounts"), publish)
            return await processor.process(
                Envelope.of("m1", "Asked", json.dumps({"account": "a", "what": what}))
            )

    (outcome,) = asyncio.run(ask())

    assert outcome.status is Status.DEAD_LETTER
    assert outcome.error is not None
    assert outcome.error.startswith(begins)
    assert outcome.error.endswith(f"({FILE}, line {line_of(comment)})")
    assert "pydantic.dev" not in outcome.error
    assert "\n" not in outcome.error
