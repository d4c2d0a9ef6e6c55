"""Output of commands: text of others cannot control the terminal; tables, and progress."""

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
from runtime.cli.console import (
    Screen,
    StepProgress,
    complain,
    counted,
    make_facts,
    make_table,
    visible_json,
)
from tests.support.consumer import Consumer
from tests.support.logs import GAME
from tests.unit.cli.stores import NOW, ON_STORE, on_store

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
    """Return the control characters in a text, except the colours of the program."""
    return COMMAND.findall(OWN_STYLES.sub("", text))


@pytest.fixture
def hostile(store):
    """Add dead letters and streams with hostile ids and types."""

    async def refuse(table):
        for text in HOSTILE.values():
            await Consumer(table, clock=NOW).handle(Envelope.of(text, f"T{text}", "{}"))
            start = json.dumps({"game_id": "no game" + text, "target_position": 1})
            await Consumer(table, clock=NOW).handle(Envelope.of("s" + text, "StartNewRound", start))

    on_store("sqlite:///store.db", refuse)


@pytest.mark.parametrize("options", [(), ("--json",), ("--group",)])
def test_dead_letters_with_hostile_text_are_listed(consistent, hostile, options):
    said = consistent("letters", *ON_STORE, "--limit", "100", *options)

    assert "52;c" in said.out
    assert commands(said.out + said.err) == []
    if "--json" in options:
        assert {each["message_id"] for each in said.document["letters"]} >= set(HOSTILE.values())


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_an_error_repeats_hostile_arguments_harmlessly(consistent, store, text):
    said = consistent("show", *ON_STORE, "ShootingRange", text)

    assert said.code
    assert commands(said.out + said.err) == []
    assert not re.search("^Error: everything", said.err, re.MULTILINE)


texts = st.text(st.characters(), max_size=30) | st.sampled_from(sorted(HOSTILE.values()))


@given(texts, st.booleans())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_part_of_the_output_controls_the_terminal(capsys, monkeypatch, text, is_terminal):
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
def test_json_keeps_the_text(text):
    assert json.loads(visible_json({"text": text})) == {"text": text}


REPOSITORY = Path(__file__).parents[3]


def test_a_table_in_a_pipe_keeps_ids_whole(store, tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "runtime", "show", "--store", store, "--table", "games"],
        env={"PYTHONPATH": str(REPOSITORY)}, cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    rows = [line.split() for line in done.stdout.splitlines()[3:]]

    assert [len(row[1]) for row in rows] == [36] * 3


@pytest.mark.parametrize(
    "command",
    [["show"], ["show", "ShootingRange", GAME], ["show", "--stats"], ["sql", "@window"], ["letters"]],
    ids=" ".join,
)
def test_a_table_fits_80_columns_and_wraps_long_ids(consistent, hostile, monkeypatch, command):
    monkeypatch.setenv("COLUMNS", "80")

    lines = consistent(command[0], *ON_STORE, *command[1:]).out.splitlines()

    assert max(map(len, lines)) <= 80
    assert "…" not in "".join(lines)
    if command == ["show"]:
        (heads,) = [line for line in lines if "business id" in line]
        column = slice(heads.index("business id"), heads.index("versions"))
        assert GAME in "".join(line[column].strip() for line in lines)


def test_numbers_have_their_nouns_in_the_right_form():
    numbers = ((0, "run"), (1, "run"), (1200, "delivery"), (2, "batch"), (3, "orphaned document"))
    assert [counted(*each) for each in numbers] == [
        "0 runs", "1 run", "1,200 deliveries", "2 batches", "3 orphaned documents"
    ]  # fmt: skip


@pytest.mark.thorough
def test_a_service_that_does_not_answer_is_one_sentence(tmp_path):
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "ignore", "-m", "runtime", "show",
         "--store", "azurite://127.0.0.1:9", "--table", "games"],
        env={"PYTHONPATH": str(REPOSITORY)}, cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert done.returncode == 1
    assert done.stderr.startswith("Error: ")
    assert "Unclosed" not in done.stderr


class Shown:
    """A progress display on a console whose text is kept, with a clock that the test sets."""

    def __init__(self, *, is_terminal: bool, keep_steps: bool = True) -> None:
        self.now, self._file = 0.0, io.StringIO()
        console = Console(file=self._file, width=120, force_terminal=is_terminal, color_system=None)
        self.progress = StepProgress(console, keep_steps=keep_steps, clock=lambda: self.now)

    @property
    def text(self) -> str:
        return self._file.getvalue()


@pytest.mark.parametrize("keep_steps", [True, False])
def test_steps_are_marked_on_a_terminal_and_an_error_fails_the_last(keep_steps):
    shown = Shown(is_terminal=True, keep_steps=keep_steps)

    def read_and_verify() -> None:
        with shown.progress as progress:
            progress.show_rows("Reading", 7)
            shown.now = 1.5
            progress.show_rows("Verifying", 3)
            raise ValueError("damaged")

    with pytest.raises(ValueError, match="damaged"):
        read_and_verify()

    assert ("✓ Reading (1.5 s)" in shown.text) == keep_steps
    assert "✗ Verifying (0.0 s)" in shown.text


def test_elsewhere_each_step_is_a_line_and_a_count_every_ten_seconds_with_the_rate_since_the_first():
    shown = Shown(is_terminal=False)

    shown.progress.step("Reading the [log]")
    shown.progress.step("Publishing")
    for second in range(25):
        shown.now = float(second)
        shown.progress.show_outputs(500 + 100 * second, 5000)
    shown.progress.done()
    shown.now = 100.0
    shown.progress.show_outputs(5000, 5000)

    assert shown.text.splitlines() == [
        "Reading the [log]",
        "Publishing",
        "Publishing: 1,500 of 5,000 outputs, 100 a second",
        "Publishing: 2,500 of 5,000 outputs, 100 a second",
    ]
