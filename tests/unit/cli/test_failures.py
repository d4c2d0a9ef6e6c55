"""Errors are one sentence, traces are in the log file, and an interrupt stays one."""

import signal
import time
import weakref

import pytest
import typer

from runtime.cli import failures as log_file
from runtime.cli.failures import UnexpectedError, append_trace, prepare_log, traced
from runtime.cli.sessions import _interrupt_behind, _never_ignored


def test_it_is_one_sentence_that_says_where_the_trace_is(consistent, store, tmp_path, monkeypatch):
    def broken(*_):
        raise ZeroDivisionError("a [broken] thing")

    monkeypatch.setattr("runtime.cli.commands.show.on_table", broken)

    said = consistent("show", "--store", store, "--table", "games")

    assert said.code == 1
    assert said.err == (
        "Error: Unexpected error: ZeroDivisionError: a [broken] thing. "
        "The traceback is in .consistent/consistent.log.\n"
    )
    log = (tmp_path / ".consistent" / "consistent.log").read_text()
    assert "Traceback" in log
    assert "ZeroDivisionError: a [broken] thing" in log


def test_its_trace_goes_to_the_log_file_that_was_named(tmp_path):
    log = tmp_path / "logs" / "mine.log"

    with pytest.raises(UnexpectedError, match=r"mine\.log"), traced(log):
        raise KeyError("x")

    assert "KeyError" in log.read_text()


@pytest.mark.parametrize("error", [typer.Exit(3), typer.BadParameter("x"), KeyboardInterrupt()])
def test_what_is_meant_to_pass_passes(error, tmp_path):
    with pytest.raises(type(error)), traced(tmp_path / "log"):
        raise error

    assert not (tmp_path / "log").exists()


def test_a_log_file_that_cannot_be_written_costs_only_the_trace(tmp_path):
    (tmp_path / "file").write_text("")

    assert append_trace(ValueError("x"), tmp_path / "file" / "log") is None


def test_a_long_log_file_is_begun_anew(tmp_path, monkeypatch):
    monkeypatch.setattr(log_file, "LIMIT_BYTES", 10)
    log = tmp_path / "spark.log"
    log.write_text("more than ten bytes")

    prepare_log(log)

    assert log.read_text() == ""
    assert (tmp_path / "spark.log.1").read_text() == "more than ten bytes"


def test_the_folder_of_the_log_file_keeps_out_of_version_control(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    prepare_log()

    assert (tmp_path / ".consistent" / ".gitignore").read_text().endswith("*\n")


def interrupted(raise_in_turn) -> BaseException:
    with pytest.raises(BaseException) as found:  # noqa: PT011 - whatever it is
        raise_in_turn()
    return found.value


def fails_while_it_is_passed_on():
    try:
        raise KeyboardInterrupt
    finally:
        raise OSError("the connection is gone")


def is_told_as_a_failed_batch():
    try:
        fails_while_it_is_passed_on()
    except OSError as error:
        raise RuntimeError("the batch failed") from error


def has_nothing_to_do_with_it():
    raise OSError("no answer")


@pytest.mark.parametrize("raise_in_turn", [fails_while_it_is_passed_on, is_told_as_a_failed_batch])
def test_the_interrupt_behind_an_error_is_found(raise_in_turn):
    assert isinstance(_interrupt_behind(interrupted(raise_in_turn)), KeyboardInterrupt)


def test_another_error_is_no_interrupt():
    assert _interrupt_behind(interrupted(has_nothing_to_do_with_it)) is None


class Freed:
    pass


def free_and_wait(objects):
    objects.clear()
    time.sleep(60)


def test_an_interrupt_while_an_object_is_freed_comes_again():
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    freed = [Freed()]
    reference = weakref.ref(freed[0], lambda _: signal.raise_signal(signal.SIGINT))
    try:
        with pytest.raises(KeyboardInterrupt), _never_ignored():
            free_and_wait(freed)
    finally:
        signal.signal(signal.SIGINT, handler)
    assert reference() is None
