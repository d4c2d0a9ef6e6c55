"""Progress is one line for each step in a file, and a spinner with a mark after each step on a terminal."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from runtime.cli.console import StepProgress


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
