"""An interrupt stays one, whatever fails while it is passed on."""

import signal
import time
import weakref

import pytest

from runtime.cli.sessions import _interrupt_behind, _never_ignored


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
