"""Workers tell the driver what they have done, and it sums up what it hears."""

import socket

import pytest

from handlers import App, Context, Handler, Message, State, handles
from runtime.messages.envelopes import Envelopes
from runtime.spark.counts import Counts
from runtime.spark.workers.deliveries import Group
from runtime.spark.workers.meter import LAYOUT, Meter


class Sold(Message):
    shop: str


class Nothing(State):
    pass


class Shop(Handler[Nothing]):
    @handles(by="shop")
    def sold(self, state: Nothing, message: Sold, context: Context) -> Nothing:
        return state


class Taxes(Handler[Nothing]):
    @handles(by="shop")
    def sold(self, state: Nothing, message: Sold, context: Context) -> Nothing:
        return state


ALONE, BOTH = App(Shop), App(Shop, Taxes)


@pytest.fixture
def counts():
    listening = Counts("127.0.0.1")
    yield listening
    listening.close()


def group(handler, count, *, follows=False, business_id="s1"):
    envelopes = Envelopes(types=["Sold"] * count, message_ids=["m"] * count)
    return Group(handler, business_id, follows, envelopes=envelopes)


def test_what_several_tasks_have_done_is_added_up(counts):
    for partition in (0, 1):
        meter = Meter(counts.address, ALONE, partition=partition)
        meter.add(group("Shop", 3))
        meter.add(group("Shop", 2, follows=True))
        meter.tell()

    assert counts.read() == (10, 2)
    assert counts.read() == (10, 2)


def test_a_port_that_was_closed_tells_nothing(counts):
    meter = Meter(counts.address, ALONE, partition=0)
    meter.add(group("Shop", 3))
    meter.tell()
    meter.tell_of("m")
    assert counts.read() == (3, 1)
    assert counts.slow == "m"

    # When an interrupt came before the thread that reads could be ended
    counts.close()

    assert counts.read() == (0, 0)
    assert counts.slow is None


def test_a_task_that_runs_twice_counts_once(counts):
    for messages in (5, 2):
        meter = Meter(counts.address, ALONE, partition=0)
        meter.add(group("Shop", messages))
        meter.tell()

    assert counts.read() == (5, 1)


def test_a_message_that_two_handlers_take_counts_once(counts):
    meter = Meter(counts.address, BOTH, partition=0)
    for each in (group("Shop", 3), group("Taxes", 3), group(None, 1, business_id=None)):
        meter.add(each)
    meter.tell()

    assert counts.read() == (4, 2)


def test_the_driver_is_told_twice_a_second_at_most(counts):
    now = [0.0]
    meter = Meter(counts.address, ALONE, lambda: now[0], partition=0)
    heard = []
    for tenth in range(12):
        now[0] = tenth / 10
        meter.add(group("Shop", 1))
        heard.append(counts.read()[0])

    assert heard == [0, 0, 0, 0, 0, 6, 6, 6, 6, 6, 11, 11]


def test_nobody_else_is_heard(counts):
    host, port, _ = counts.address
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        for text in (b"", b"?" * LAYOUT.size, LAYOUT.pack(b"x" * 16, 0, 10**9, 1), b"?" * 2000):
            stranger.sendto(text, (host, port))

    assert counts.read() == (0, 0)


def test_a_driver_that_does_not_listen_disturbs_nobody(counts):
    counts.close()
    meter = Meter(counts.address, ALONE, partition=0)
    meter.add(group("Shop", 1))
    meter.tell()


def test_without_an_address_nothing_is_counted():
    meter = Meter(None, ALONE, partition=0)
    meter.add(group("Shop", 1))
    meter.tell()


@pytest.mark.parametrize("message_id", ["m-5", "x" * 255])
def test_a_message_that_takes_long_is_named_until_something_else_is_told(counts, message_id):
    meter = Meter(counts.address, ALONE, partition=0)

    meter.tell_of(message_id)
    counts.read()
    assert counts.slow == message_id

    meter.tell()
    counts.read()
    assert counts.slow is None
