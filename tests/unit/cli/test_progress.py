"""Progress is one line for each step in a file, and a bar with a mark after each step on a terminal."""

import io

from rich.console import Console

from runtime.cli.progress import StepProgress
from runtime.spark.counts import Done


def progress(**options):
    console = Console(
        file=io.StringIO(), width=120, force_terminal=options.pop("is_terminal"), color_system=None
    )
    return StepProgress(console, **options), console.file


def test_each_step_is_a_line_where_there_is_no_terminal():
    shown, file = progress(is_terminal=False)

    shown.step("Reading the [log]")
    shown.step("Counting")
    shown.done()

    assert file.getvalue() == "Reading the [log]\nCounting\n"


def test_steps_that_are_done_are_marked_on_a_terminal_with_their_time():
    now = [10.0]
    shown, file = progress(is_terminal=True, clock=lambda: now[0])

    shown.step("Reading the log")
    now[0] = 11.5
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


def test_in_a_file_a_long_step_has_a_line_every_ten_seconds():
    now = [0.0]
    shown, file = progress(is_terminal=False, clock=lambda: now[0])

    shown.step("Round 0")
    for second in range(25):
        now[0] = float(second)
        shown.show_streams(0, 8)
    shown.done()
    now[0] = 100.0
    shown.show_streams(8, 8)

    assert file.getvalue().splitlines() == [
        "Round 0",
        "Round 0: 0 of 8 streams after 10 s",
        "Round 0: 0 of 8 streams after 20 s",
    ]


def test_streams_are_counted_with_how_many_a_second():
    now = [0.0]
    shown, file = progress(is_terminal=False, clock=lambda: now[0])

    shown.step("Cutting")
    for second in range(25):
        now[0] = float(second)
        shown.show_streams(1000 * second, 100_000)

    assert file.getvalue().splitlines() == [
        "Cutting",
        "Cutting: 10,000 of 100,000 streams after 10 s, 1,000 a second, about 90 s left",
        "Cutting: 20,000 of 100,000 streams after 20 s, 1,000 a second, about 80 s left",
    ]


def test_messages_are_counted_with_their_streams_and_the_time_that_is_left():
    now = [0.0]
    shown, file = progress(is_terminal=False, clock=lambda: now[0])

    shown.step("Round 0")
    for second in range(1, 21):
        now[0] = float(second)
        shown.show_messages(Done(2000 * second, second // 10, 100_000))
    shown.step("Round 1")
    now[0] = 28.0  # when the log is shuffled
    shown.show_messages(Done(100, 4))
    now[0] = 30.0
    shown.show_messages(Done(500, 20))

    assert file.getvalue().splitlines() == [
        "Round 0",
        "Round 0: 20,000 of 100,000 messages in 1 stream after 10 s, 2,000 a second, about 40 s left",
        "Round 0: 40,000 of 100,000 messages in 2 streams after 20 s, 2,000 a second, about 30 s left",
        "Round 1",
        "Round 1: 500 messages in 20 streams after 10 s, 200 a second",
    ]


def test_a_sweep_counts_entities_which_it_knows_and_not_the_messages_that_it_finds():
    now = [0.0]
    shown, file = progress(is_terminal=False, clock=lambda: now[0])

    shown.step("Round 0")
    now[0] = 10.0
    shown.show_messages(Done(messages=7, streams=50, of_streams=200))

    assert file.getvalue().splitlines() == [
        "Round 0",
        "Round 0: 50 of 200 entities after 10 s, 5 a second, about 30 s left",
    ]


def test_on_a_terminal_too():
    now = [10.0]
    shown, file = progress(is_terminal=True, clock=lambda: now[0])

    shown.step("Cutting")
    now[0] = 12.0
    shown.show_streams(300, 1000)
    shown.done()

    assert "300/1,000 streams, 150 a second, about 5 s left" in file.getvalue()


def test_outputs_are_counted_without_those_that_were_sent_before():
    now = [0.0]
    shown, file = progress(is_terminal=False, clock=lambda: now[0])

    shown.step("Publishing")
    for second, done in ((1, 500), (11, 1500)):
        now[0] = float(second)
        shown.show_outputs(done, 2000)

    assert file.getvalue() == (
        "Publishing\nPublishing: 1,500 of 2,000 outputs after 11 s, 100 a second, about 5 s left\n"
    )
