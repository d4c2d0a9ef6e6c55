"""The processor: one message at a time, in every handler that takes it, published last."""

import json
from pathlib import Path

import pytest

from eventstore import InterceptedTable, Table, drive
from handlers import App, Context, Handler, Message, State, handles
from runtime import Envelope, Outcome, Output, Processor, Status, TableSettings
from samples.shooting_range import app as shooting_range
from tests.unit.runtime import diary
from tests.unit.runtime.algorithms.game import GAME
from tests.unit.runtime.diary import delivery
from tests.unit.runtime.tables import memory_table
from tests.unit.runtime.worker import ToldClock, ends, made_by


class Rang(Message):
    tower: str


class Heard(Message):
    by: str


class Data(State):
    rings: int = 0


class Bell(Handler[Data]):
    @handles(by="tower")
    def rang(self, state: Data, message: Rang, context: Context) -> Data:
        context.publish(Heard(by="bell"))
        context.publish(Heard(by="bell again"))
        return state.model_copy(update={"rings": state.rings + 1})


class Echo(Handler[Data]):
    @handles(by="tower")
    def rang(self, state: Data, message: Rang, context: Context) -> Data:
        if message.tower == "silent":
            raise ValueError("no echo")
        context.publish(Heard(by="echo"))
        return state


class Log:
    """Notes the calls of a table and what is published, in their order."""

    def __init__(self) -> None:
        self.entries: list[str] = []
        self.table = memory_table()
        self.watched = InterceptedTable(self.table, after=lambda name, *_: self.entries.append(name))

    async def publish(self, output: Output) -> None:
        self.entries.append(json.loads(output.body).get("by", output.type))


async def ignore(output: Output) -> None: ...


def process(app: App, table: Table, message: Envelope, publish=ignore, **named) -> list[Outcome]:
    processor = Processor(app, table, publish, clock=ToldClock(), settings=TableSettings(), **named)
    return drive(processor.process(message))


def rang(tower: str = "east", **fields: str) -> Envelope:
    return delivery("m-1", "Rang", {"tower": tower}, **fields)


def test_outputs_are_published_in_order_after_what_they_speak_of_is_stored_durably():
    log = Log()

    outcomes = process(App(Bell, Echo), log.watched, rang(), log.publish)

    stored = ["query", "transact", "barrier"]
    assert log.entries == [*stored, "bell", "bell again", *stored, "echo"]
    # Whoever deduplicates by id must not lose what the other handler published
    assert len({output.message_id for outcome in outcomes for output in outcome.outputs}) == 3
    assert [outcome.handler for outcome in outcomes] == ["Bell", "Echo"]
    assert ends(outcomes) == ["processed", "processed"]


def test_a_dead_letter_in_one_handler_leaves_the_other_alone():
    log = Log()

    outcomes = process(App(Echo, Bell), log.table, rang("silent"), log.publish)

    assert ends(outcomes) == ["handler_error", "processed"]
    assert log.entries == ["bell", "bell again"]


@pytest.mark.parametrize("begin", [b"", b" ", b"\r\n\t", b"\xef\xbb\xbf"])
def test_json_in_bytes_is_told_from_msgpack(begin):
    message = delivery("m", "Write", begin + b'{"diary": "d-1", "line": "x"}')

    for given in (None, "d-1"):
        (outcome,) = process(diary.app, memory_table(), message._replace(business_id=given))

        assert ends([outcome]) == ["invalid_body"]
        assert "JSON as bytes" in (outcome.error or "")


@pytest.mark.parametrize("spelling", [str(GAME).upper(), GAME.hex, f"{{{GAME}}}", GAME.urn, str(GAME)])
def test_a_uuid_for_a_business_id_is_one_game_however_it_is_spelled(table, spelling):
    body = {"game_id": spelling, "position": 1}

    outcomes = process(shooting_range, table, delivery("m-1", "StartNewRound", body))
    for number, business_id in enumerate((spelling, str(GAME), ""), 2):  # the last names none
        message = delivery(f"m-{number}", "FireAt", body, business_id=business_id)
        outcomes += process(shooting_range, table, message)

    assert ends(outcomes) == ["processed"] * 4
    assert made_by(table, "ShootingRange", str(GAME)) == ["m-1", "m-2", "m-3", "m-4"]


def test_a_text_for_a_business_id_is_taken_to_the_letter(table):
    body = {"diary": str(GAME).upper()}

    (outcome,) = process(diary.app, table, delivery("m-1", "Ponder", body, business_id=str(GAME).upper()))
    (other,) = process(diary.app, table, delivery("m-2", "Ponder", body, business_id=str(GAME)))

    assert ends([outcome, other]) == ["processed", "business_id_mismatch"]


# A dead letter of a handler's error names the line of the user's code, not of a package or of Python's own.


FILE = "test_processor.py"


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
        ("assign", "assigning", "ValidationError: Total: total: Instance is frozen; return a changed copy"),
        ("copy", "copying", "ValidationError: Total: total: Input should be a valid integer"),
        ("draw", "drawing", ""),
        ("publish", "publishing", "publish() takes a Message, not a str."),
        ("decode", "decoding", "JSONDecodeError: Expecting property name"),
    ],
)
def test_the_line_is_the_users(table, what, comment, begins):
    (outcome,) = process(App(Account), table, delivery("m1", "Asked", {"account": "a", "what": what}))

    assert outcome.status is Status.DEAD_LETTER
    error = outcome.error or ""
    assert error.startswith(begins)
    assert error.endswith(f"({FILE}, line {line_of(comment)})")
    assert "pydantic.dev" not in error
    assert "\n" not in error
