"""What a command prints: text of others commands no terminal, tables, and progress."""

import io
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.console import Console

from runtime import Envelope
from runtime.cli.console import Screen, StepProgress, complain, counted, make_facts, make_table
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


REPOSITORY = Path(__file__).parents[3]


def test_a_table_keeps_ids_whole(store, tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "runtime", "show", "--store", store, "--table", "games"],
        env={"PYTHONPATH": str(REPOSITORY)}, cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    rows = [line.split() for line in done.stdout.splitlines()[3:]]

    assert [len(row[1]) for row in rows] == [36] * 3


@pytest.mark.parametrize(
    ("number", "noun", "text"),
    [
        (0, "run", "0 runs"),
        (1, "run", "1 run"),
        (1200, "delivery", "1,200 deliveries"),
        (1, "delivery", "1 delivery"),
    ],
)
def test_one_is_singular(number, noun, text):
    assert counted(number, noun) == text


@pytest.mark.thorough
def test_a_service_that_does_not_answer_is_said_and_nothing_else(tmp_path):
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "ignore", "-m", "runtime", "show",
         "--store", "azurite://127.0.0.1:9", "--table", "games"],
        env={"PYTHONPATH": str(REPOSITORY)}, cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert done.returncode == 1
    assert done.stderr.startswith("Error: ")
    assert "Unclosed" not in done.stderr


class Shown:
    """A progress on a console whose text is kept, with a clock that is told the time."""

    def __init__(self, *, is_terminal: bool, keep_steps: bool = True) -> None:
        self.now = 0.0
        self._file = io.StringIO()
        console = Console(file=self._file, width=120, force_terminal=is_terminal, color_system=None)
        self.progress = StepProgress(console, keep_steps=keep_steps, clock=lambda: self.now)

    @property
    def text(self) -> str:
        return self._file.getvalue()


def test_each_step_is_a_line_where_there_is_no_terminal():
    shown = Shown(is_terminal=False)

    shown.progress.step("Reading the [log]")
    shown.progress.step("Counting")
    shown.progress.done()

    assert shown.text == "Reading the [log]\nCounting\n"


@pytest.mark.parametrize("keep_steps", [True, False])
def test_steps_are_marked_on_a_terminal_with_their_time(keep_steps):
    shown = Shown(is_terminal=True, keep_steps=keep_steps)

    shown.progress.step("Reading the log")
    shown.now = 1.5
    shown.progress.step("Counting")
    shown.progress.failed()

    assert ("✓ Reading the log (1.5 s)" in shown.text) == keep_steps
    assert "✗ Counting (0.0 s)" in shown.text


def test_what_is_counted_has_a_line_every_ten_seconds_in_a_file_with_the_rate_since_the_first_count():
    shown = Shown(is_terminal=False)

    shown.progress.step("Publishing")
    for second in range(25):
        shown.now = float(second)
        shown.progress.show_outputs(500 + 100 * second, 5000)
    shown.progress.done()
    shown.now = 100.0
    shown.progress.show_outputs(5000, 5000)

    assert shown.text.splitlines() == [
        "Publishing",
        "Publishing: 1,500 of 5,000 outputs, 100 a second",
        "Publishing: 2,500 of 5,000 outputs, 100 a second",
    ]


def test_rows_of_another_step_end_the_one_before_and_an_error_fails_the_last():
    shown = Shown(is_terminal=True)

    def read_and_verify() -> None:
        with shown.progress as progress:
            progress.show_rows("Reading", 7)
            progress.show_rows("Verifying", 3)
            raise ValueError("damaged")

    with pytest.raises(ValueError, match="damaged"):
        read_and_verify()

    assert "✓ Reading" in shown.text
    assert "✗ Verifying" in shown.text
