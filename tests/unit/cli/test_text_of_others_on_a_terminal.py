"""Ids, types and errors come from senders: whatever they hold, they are shown on a terminal and command nothing."""

import json
import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runtime import Envelope
from runtime.cli.console import Screen, complain, make_facts, make_table
from tests.support.consumer import Consumer
from tests.unit.cli.stores import NOW, TABLE, on_store

ON_STORE = ["--store", "sqlite:///store.db", "--table", TABLE]
HOSTILE = {
    "clipboard": "\x1b]52;c;cm0gLXJmIH4=\x07",
    "clear screen": "\x1b[2J\x1b[H",
    "one byte": "\x9b2J",
    "title": "\x9d0;mine\x9c",
    "back": "shown\rhidden\x08\x08",
    "direction": "\u202egnp.exe",
    "lines": "a\u2028b\u2029c\x85d\x0be",
    "forged": "a\nError: everything is lost",
    "delete": "\x7f",
    "isolates": "\u2066x\u2069",
    "no width": "ad\xadmi\u200bn\u2060\u200d\u034f",
    "filler": "\u3164\uffa0\u115f",
    "tags": "admin\U000e0041\U000e007f\ufe0e",
}
COMMAND = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe0e\uffa0"
    "\U000e0000-\U000e0fff]"
)
OWN_STYLES = re.compile(r"\x1b\[[0-9;]*m")


def commands(text: str) -> list[str]:
    """Return what a terminal would obey, but for the colours that the program sets."""
    return COMMAND.findall(OWN_STYLES.sub("", text))


@pytest.fixture
def hostile(store):
    """Refuse messages with hostile ids and types, and make a stream with a hostile business id."""

    async def refuse(table):
        for text in HOSTILE.values():
            await Consumer(table, clock=NOW).handle(Envelope.of(text, f"T{text}", "{}"))
            start = json.dumps({"game_id": "no game" + text, "target_position": 1})
            await Consumer(table, clock=NOW).handle(Envelope.of("s" + text, "StartNewRound", start))

    on_store("sqlite:///store.db", refuse)


@pytest.mark.parametrize("options", [(), ("--json",), ("--group",)])
def test_refused_messages_are_listed(consistent, hostile, options):
    said = consistent("letters", *ON_STORE, "--limit", "100", *options)

    assert "52;c" in said.out
    assert commands(said.out + said.err) == []
    if "--json" in options:
        assert {each["message_id"] for each in said.document["letters"]} >= set(HOSTILE.values())


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_an_error_that_repeats_what_was_asked_for(consistent, store, text):
    said = consistent("show", *ON_STORE, "ShootingRange", text)

    assert said.code
    assert commands(said.out + said.err) == []
    assert not re.search("^Error: everything", said.err, re.MULTILINE)


texts = st.text(st.characters(), max_size=30) | st.sampled_from(sorted(HOSTILE.values()))


@given(texts, st.booleans())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_part_of_what_is_shown_commands_the_terminal(capsys, monkeypatch, text, is_terminal):
    if is_terminal:
        monkeypatch.setenv("FORCE_COLOR", "1")
    screen = Screen()
    screen.show(text, make_table(text, [text, "n"], [(text, 1)]), make_facts(text, [(text, text)]))
    screen.note(text)
    complain(text)
    Screen(as_json=True).put({text: text}, text)

    said = capsys.readouterr()

    assert commands(said.out + said.err) == []


@given(texts)
def test_json_says_the_same(text):
    from runtime.cli.console import visible_json

    assert json.loads(visible_json({"text": text})) == {"text": text}
