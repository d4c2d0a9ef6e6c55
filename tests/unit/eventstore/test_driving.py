from __future__ import annotations

import asyncio

import pytest

from eventstore import drive


async def answer():
    return 42


async def nested():
    return await answer() + await answer()


async def fail():
    raise LookupError("inside")


def test_a_coroutine_that_never_suspends_is_run_to_its_result():
    assert drive(nested()) == 84


def test_its_errors_come_out():
    with pytest.raises(LookupError, match="inside"):
        drive(fail())


def test_a_coroutine_that_suspends_is_an_error_and_is_closed():
    closed = []

    async def wait():
        try:
            await asyncio.sleep(0)
        finally:
            closed.append(True)

    with pytest.raises(RuntimeError, match="event loop"):
        drive(wait())
    assert closed == [True]
