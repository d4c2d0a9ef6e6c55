"""Headers pass from a log to the handlers unchanged, whatever characters they hold; what is no text does not pass."""

import json

import pytest

from handlers import App, Context, Handler, Message, State, handles
from runtime.spark import dead_letters, outputs
from tests.support.logs import message_id, row, write_lines

LOWEST = "".join(map(chr, range(0x300)))
ODD = {
    "": "",
    " ": "\ufeff \ufffe \uffff \u2028 \u2029",
    "\0": "\x7f \U0001f600 \U0010ffff",
    '"quoted"': "'single' \\ \\\\ \\u0041 / </x>",
    "null": "null",
    LOWEST: LOWEST,
}
GIVEN = [ODD, {"one": "1"}, {}, None]
COLUMNS = "message_id string, type string, body string, sequence long, headers map<string,string>"


class Nothing(State):
    pass


class Sent(Message):
    echo: str


class Heard(Message):
    echo: str


class Echo(Handler[Nothing]):
    @handles(by="echo")
    def answer(self, state: Nothing, message: Sent, context: Context) -> Nothing:
        context.publish(Heard(echo=message.echo), headers=context.headers)
        return state


app = App(Echo)


def sent(number, headers):
    return row(number, "Sent", {"echo": str(number)}, headers=headers)


def heard(outcomes):
    """Return the headers of the outputs by the number of the message."""
    found = outputs(outcomes).select("body", "headers").collect()
    return {int(json.loads(output.body)["echo"]): output.headers for output in found}


@pytest.mark.parametrize("format_", ["lines", "columns"])
def test_as_text_of_any_characters(place, format_):
    place.app = app
    rows = [sent(number, headers) for number, headers in enumerate(GIVEN)]
    log = (
        write_lines(place.folder / "log.jsonl", rows)
        if format_ == "lines"
        else place.spark.createDataFrame(rows, COLUMNS)
    )

    found = heard(place.run(log))

    assert found == {number: headers or {} for number, headers in enumerate(GIVEN)}


@pytest.mark.thorough
def test_of_two_values_of_one_name_the_last_counts_and_one_without_makes_a_dead_letter(place):
    place.app = app
    twice = json.dumps(sent(3, {"a": "last"})).replace('{"a"', '{"a": "first", "a"')
    rows = [sent(1, {"here": "x", "gone": None}), sent(2, {"a": "b"}), twice]

    outcomes = place.run(write_lines(place.folder / "log.jsonl", rows))

    (letter,) = dead_letters(outcomes).collect()
    assert letter.message_id == message_id(1)
    assert letter.error == "Its headers hold something other than text: {'here': 'x', 'gone': None}"
    assert heard(outcomes) == {2: {"a": "b"}, 3: {"a": "last"}}
