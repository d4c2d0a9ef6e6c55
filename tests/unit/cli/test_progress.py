"""Progress is one line for each step in a file, and a bar with a mark after each step on a terminal."""

import io
from types import SimpleNamespace

from rich.console import Console

from runtime.cli import progress as drawing
from runtime.cli.progress import StepProgress


def progress(**options):
    console = Console(
        file=io.StringIO(), width=80, force_terminal=options.pop("is_terminal"), color_system=None
    )
    return StepProgress(console, **options), console.file


def test_each_step_is_a_line_where_there_is_no_terminal():
    shown, file = progress(is_terminal=False)

    shown.step("Reading the [log]")
    shown.step("Counting")
    shown.done()

    assert file.getvalue() == "Reading the [log]\nCounting\n"


def test_steps_that_are_done_are_marked_on_a_terminal_with_their_time(monkeypatch):
    begun_and_ended = iter([10.0, 11.5, 20.0, 20.0])
    monkeypatch.setattr(drawing, "time", SimpleNamespace(monotonic=lambda: next(begun_and_ended)))
    shown, file = progress(is_terminal=True)

    shown.step("Reading the log")
    shown.step("Counting")
    shown.failed()

    assert "✓ Reading the log (1.5 s)" in file.getvalue()
    assert "✗ Counting (0.0 s)" in file.getvalue()


def test_steps_that_are_done_need_not_stay():
    shown, file = progress(is_terminal=True, keep_steps=False)

    shown.step("Reading the log")
    shown.done()
    shown.step("Counting")
    shown.failed()

    assert "✓" not in file.getvalue()
    assert "✗ Counting" in file.getvalue()


def test_tasks_are_counted_while_a_step_is_under_way():
    shown, file = progress(is_terminal=True)

    shown.show(1, 2)
    assert file.getvalue() == ""

    shown.step("Reading the log")
    shown.show(3, 12)
    shown.show(0, 0)
    shown.done()

    assert "3/12 tasks" in file.getvalue()


def test_in_a_file_a_long_step_has_a_line_every_ten_seconds(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(drawing, "time", SimpleNamespace(monotonic=lambda: now[0]))
    shown, file = progress(is_terminal=False)

    shown.step("Round 0: handling messages")
    for second in range(25):
        now[0] = float(second)
        shown.show(second // 5, 8)
    shown.done()
    now[0] = 100.0
    shown.show(8, 8)

    assert file.getvalue().splitlines() == [
        "Round 0: handling messages",
        "Round 0: handling messages: 2 of 8 tasks after 10 s, about 30 s left",
        "Round 0: handling messages: 4 of 8 tasks after 20 s, about 20 s left",
    ]


def test_streams_are_counted_in_place_of_tasks_with_how_many_a_second(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(drawing, "time", SimpleNamespace(monotonic=lambda: now[0]))
    shown, file = progress(is_terminal=False)

    shown.step("Cutting")
    for second in range(25):
        now[0] = float(second)
        shown.show(second, 99)
        shown.show_streams(1000 * second, 100_000)
    shown.step("Counting")
    for second in range(25, 36):
        now[0] = float(second)
        shown.show(4, 8)

    assert file.getvalue().splitlines() == [
        "Cutting",
        "Cutting: 10,000 of 100,000 streams after 10 s, 1,000 a second, about 90 s left",
        "Cutting: 20,000 of 100,000 streams after 20 s, 1,000 a second, about 80 s left",
        "Counting",
        "Counting: 4 of 8 tasks after 10 s, about 10 s left",
    ]


def test_on_a_terminal_too(monkeypatch):
    shown, file = progress(is_terminal=True)
    now = [10.0]
    monkeypatch.setattr(drawing, "time", SimpleNamespace(monotonic=lambda: now[0]))

    shown.step("Cutting")
    now[0] = 12.0
    shown.show_streams(300, 1000)
    shown.done()

    assert "300/1000 streams, 150 a second" in file.getvalue()
