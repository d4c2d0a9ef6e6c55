"""A batch over HTTP: one request for each output, its id as the key, whatever the receiver does."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from runtime.publishing.targets.http import retry_after
from tests.support.done_batches import outcome, output


def test_each_output_is_sent_once_with_what_it_is(batch, receiver):
    batch.publish(f"{receiver.url}/ok", headers={"Authorization": "Bearer secret"})

    counts = receiver.counts()
    assert sorted(counts["requests"]) == sorted(batch.ids)
    assert counts["effects"]["g1-2"] == {
        "path": "/ok", "body": '{"number": 2}', "Business-Id": "g1", "Message-Type": "Hit", "Message-Sequence": "2",
        "Authorization": "Bearer secret",
    }  # fmt: skip


def test_the_trace_of_an_output_is_sent_unless_it_is_no_header(make_of, receiver):
    traces = {"a": f"00-{1:032x}-{1:016x}-01", "b": "forged\r\nAuthorization: Bearer other", "c": "\u00fc"}
    rows = [
        outcome("g1", output(name, number) | {"headers": [("traceparent", trace)]})
        for number, (name, trace) in enumerate(traces.items(), 1)
    ]

    make_of([rows]).publish(f"{receiver.url}/ok")

    effects = receiver.counts()["effects"]
    expected = {"a": traces["a"], "b": None, "c": None}
    assert {name: each.get("traceparent") for name, each in effects.items()} == expected
    assert {each["Authorization"] for each in effects.values()} == {""}


def test_a_type_may_have_a_path_of_its_own(batch, receiver):
    batch.publish(f"{receiver.url}/ok?tenant=1", names={"Hit": "hits"})

    paths = {(each["Message-Type"], each["path"]) for each in receiver.counts()["effects"].values()}
    assert paths == {("Hit", "/ok/hits"), ("Missed", "/ok")}


@pytest.mark.parametrize(
    "behaviour", ["ek", "rrk", "xk", "lk"], ids=["500", "429 with Retry-After", "reset", "answer lost"]
)
def test_what_may_succeed_is_tried_again_in_order(batch, receiver, behaviour):
    batch.publish(f"{receiver.url}/{behaviour}")

    counts = receiver.counts()
    assert counts["effects"].keys() == batch.ids
    assert len(counts["requests"]) == len(batch.ids) * len(behaviour)
    for game in range(6):
        ours = [key for key in counts["effects"] if key.startswith(f"g{game}-")]
        assert ours == [f"g{game}-{number}" for number in range(4)]


def test_a_receiver_that_hangs_is_asked_again(make, receiver):
    batch = make(1, 2)
    batch.publish(f"{receiver.url}/hk", timeout=timedelta(seconds=0.2))

    assert receiver.counts()["effects"].keys() == batch.ids


def test_what_the_receiver_refuses_is_a_dead_letter_and_costs_no_other_its_place(batch, receiver):
    done = batch.publish(receiver.url, names={"Hit": "ok", "Missed": "b"})

    counts = receiver.counts()
    assert {each.message_id for each in done.refused} == batch.ids - counts["effects"].keys()
    assert {(each.type, each.why) for each in done.refused} == {("Missed", "400 no")}
    assert done.outputs == len(counts["effects"])
    assert len(counts["requests"]) == len(batch.ids)

    again = batch.publish(receiver.url, names={"Hit": "ok", "Missed": "b"})
    assert (again.refused, again.outputs) == (done.refused, 0)


def test_a_password_in_the_url_is_in_no_name(make, receiver):
    url = receiver.url.replace("//", "//user:pass@")

    done = make(1, 1).publish(f"{url}/ok?key=secret")

    assert done.publication.target == f"{receiver.url}/ok"
    assert receiver.counts()["effects"]["g0-0"]["Authorization"].startswith("Basic ")


def test_no_more_requests_are_made_a_second_than_may_be(make, receiver):
    batch = make(4, 4)
    began = datetime.now(UTC)

    batch.publish(f"{receiver.url}/ok", rate=50, concurrency=16)

    assert (datetime.now(UTC) - began).total_seconds() > 15 / 50


def test_retry_after_is_read_in_both_forms():
    soon = format_datetime(datetime.now(UTC) + timedelta(seconds=30))

    assert retry_after({"Retry-After": "7"}) == 7
    assert 25 < (retry_after({"Retry-After": soon}) or 0) <= 30
    assert retry_after({"Retry-After": "86400"}) == 120
    assert retry_after({"Retry-After": "soon"}) is None
    assert retry_after({}) is None
