"""Errors are one sentence, tracebacks are in the log file, and an interrupt stays an interrupt."""

import signal
import time
import weakref

import pytest
import typer

from runtime.cli import failures
from runtime.cli.failures import append_trace, prepare_log, traced
from runtime.cli.sessions import _interrupt_behind, _never_ignored
from tests.unit.cli.stores import ON_STORE


def test_an_unexpected_error_is_one_sentence_with_the_place_of_its_traceback(
    consistent, store, tmp_path, monkeypatch
):
    def broken(*_):
        raise ZeroDivisionError("a [broken] thing://me:hunter2@host")

    monkeypatch.setattr("runtime.cli.commands.show.on_table", broken)

    said = consistent("show", *ON_STORE)

    assert said.code == 1
    assert said.err == (
        "Error: Unexpected error: ZeroDivisionError: a [broken] thing://me:...@host. "
        "The traceback is in .consistent/consistent.log.\n"
    )
    log = (tmp_path / ".consistent" / "consistent.log").read_text()
    assert "Traceback" in log
    assert "ZeroDivisionError: a [broken] thing://me:...@host" in log
    assert "hunter2" not in log
    assert (tmp_path / ".consistent" / ".gitignore").read_text().endswith("*\n")


@pytest.mark.parametrize("error", [typer.Exit(3), typer.BadParameter("x"), KeyboardInterrupt()])
def test_errors_of_typer_and_interrupts_pass(error, tmp_path):
    with pytest.raises(type(error)), traced(tmp_path / "log"):
        raise error

    assert not (tmp_path / "log").exists()


def test_an_unwritable_log_file_costs_only_the_traceback(tmp_path):
    (tmp_path / "file").write_text("")

    assert append_trace(ValueError("x"), tmp_path / "file" / "log") is None


def test_a_long_log_file_is_rotated(tmp_path, monkeypatch):
    monkeypatch.setattr(failures, "LIMIT_BYTES", 10)
    log = tmp_path / "spark.log"
    log.write_text("more than ten bytes")

    prepare_log(log)

    assert log.read_text() == ""
    assert (tmp_path / "spark.log.1").read_text() == "more than ten bytes"


def fails_while_it_is_raised():
    try:
        raise KeyboardInterrupt
    finally:
        raise OSError("the connection is gone")


def is_wrapped_as_a_failed_batch():
    try:
        fails_while_it_is_raised()
    except OSError as error:
        raise RuntimeError("the batch failed") from error


def has_another_cause():
    raise OSError("no answer")


@pytest.mark.parametrize("work", [fails_while_it_is_raised, is_wrapped_as_a_failed_batch, has_another_cause])
def test_the_interrupt_behind_an_error_is_found(work):
    with pytest.raises((OSError, RuntimeError)) as raised:
        work()

    interrupt = _interrupt_behind(raised.value)
    assert isinstance(interrupt, KeyboardInterrupt) is (work is not has_another_cause)


class Freed:
    pass


def free_and_wait(objects):
    objects.clear()
    time.sleep(60)


def test_an_interrupt_in_a_destructor_is_sent_again():
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    freed = [Freed()]
    reference = weakref.ref(freed[0], lambda _: signal.raise_signal(signal.SIGINT))
    try:
        with pytest.raises(KeyboardInterrupt), _never_ignored():
            free_and_wait(freed)
    finally:
        signal.signal(signal.SIGINT, handler)
    assert reference() is None
