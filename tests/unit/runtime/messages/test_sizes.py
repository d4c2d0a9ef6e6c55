"""A message that is too large is a dead letter, of which a note is kept, whatever its sender made large."""

import json
from dataclasses import fields
from hashlib import sha256

import msgpack
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from eventstore import drive
from handlers import App, Context, Handler, Message, State, handles
from runtime import Processor
from runtime.batch_options import BatchOptions
from runtime.dead_letters import Selection, find_letters
from runtime.errors import UsageError
from runtime.ledger.batch import BatchContext
from runtime.messages.envelope import Envelope, Envelopes
from runtime.messages.outcome import Outcome, Reason, dead_letter
from runtime.messages.parsing import Prepared, prepare_all
from runtime.messages.sizes import Excess, MessageLimits, find_excesses, is_note, is_too_deep
from runtime.spark.worker.job import FoldJob
from tests.support.routed import routed

SMALL = MessageLimits(body=100, headers=50, outputs=3, output_bytes=200, error=300, depth=10)
MOST = SMALL.body


class Said(Message):
    room: str
    text: str
    echoes: int = 0
    length: int = 0


class Heard(Message):
    text: str


class Room(State):
    count: int = 0


class Echo(Handler[Room]):
    @handles(by="room")
    def said(self, state: Room, message: Said, context: Context) -> Room:
        if message.text == "fail":
            raise ValueError("x" * 5_000_000)
        for _ in range(abs(message.echoes)):
            try:
                context.publish(Heard(text="x" * message.length), headers={"trace": "t" * message.length})
            except Exception:
                if message.echoes > 0:
                    raise
        return Room(count=state.count + 1)


app = App(Echo)
(handler,) = app.handlers.values()


def said(text: str = "", *, message_id: str = "m-1", packed: bool = False, **more: object) -> Envelope:
    content = {"room": "hall", "text": text, **more}
    return Envelope(message_id, "Said", msgpack.packb(content) if packed else json.dumps(content))


def of_length(length: int, sign: str = "x") -> str:
    """Return a body of so many bytes."""
    room = '{"room":"hall","text":""}'
    count, rest = divmod(length - len(room), len(sign.encode()))
    return room.replace('""', json.dumps(sign * count + "x" * rest, ensure_ascii=False))


@given(
    st.integers(MOST - 3, MOST + 3) | st.integers(MOST + 1, 20 * MOST),
    st.sampled_from(["x", "ä", "€", "\U0001f600"]),
    st.booleans(),
)
def test_a_body_is_measured_in_bytes(length, sign, packed):
    data = of_length(length, sign).encode()
    body = data if packed else data.decode()

    found = find_excesses(Envelopes.of([said(), Envelope("m-1", "Said", body), said()]), SMALL)

    assert list(found) == ([1] if length > MOST else [])
    if found:
        note = json.loads(found[1].kept.body)["too_large"]
        assert (note["part"], note["bytes"], note["sha256"]) == ("body", length, sha256(data).hexdigest())
        assert is_note(found[1].kept.body)
        assert len(found[1].kept.body) < 4000


@given(
    st.dictionaries(st.text(max_size=40), st.text(max_size=40), max_size=3),
    st.text(min_size=1, max_size=60),
    st.text(max_size=60),
    st.none() | st.text(max_size=60),
)
@example({}, "\ud800", "", None)
@example({"a": "\ud800" * 20}, "m", "Said", None)
def test_so_are_headers_and_each_name(headers, message_id, type_, business_id):
    envelope = Envelope(message_id, type_, "{}", business_id, headers=headers)
    texts = ["".join([*headers, *headers.values()]), message_id, type_, business_id or ""]

    is_large = any(len(text.encode("utf-8", "surrogatepass")) > SMALL.headers for text in texts)

    assert bool(find_excesses(Envelopes.of([envelope]), SMALL)) == is_large


@pytest.mark.parametrize("sign", ["[", '{"a":', '[{"a":[', '["\\"[{",'])
@pytest.mark.parametrize("depth", [9, 10, 11, 200, 201, 100_000])
def test_json_is_not_nested_deeper_than_it_may_be(sign, depth):
    levels = sign.replace('\\"[{', "").count("[") + sign.replace('\\"[{', "").count("{")

    assert is_too_deep(sign * depth, SMALL.depth) == (levels * depth > SMALL.depth)
    assert not is_too_deep("[]{}" * depth, SMALL.depth)
    assert not is_too_deep(json.dumps("[{" * depth), SMALL.depth)


def nested(depth: int, *, in_maps: bool) -> bytes:
    """Return msgpack of so many levels, written as bytes: nobody's stack is as deep."""
    return (b"\x81\xa1a" if in_maps else b"\x91") * depth + b"\xc0"


@pytest.mark.parametrize("in_maps", [True, False])
@pytest.mark.parametrize("depth", [1, 9, 10, 11, 200, 201, 202, 1000, 1100, 5000])
def test_msgpack_is_not_nested_deeper_than_json(depth, in_maps):
    body = nested(depth, in_maps=in_maps)

    for most in (10, 200):
        assert is_too_deep(body, most) == (depth > most)
    assert not is_too_deep(msgpack.packb([body, "\u0080" * 300]), 10)
    assert not is_too_deep(msgpack.packb([[each] for each in range(300)]), 10)


@pytest.mark.parametrize("depth", [200, 201, 5000])
def test_a_body_that_is_too_deep_is_too_large_in_either_form(depth):
    fields = {"room": "a", "text": "t"}
    as_text = json.dumps(fields)[:-1] + ', "x": ' + "[" * (depth - 1) + "]" * (depth - 1) + "}"
    packed = b"\x83" + msgpack.packb(fields)[1:] + b"\xa1x" + b"\x91" * (depth - 2) + b"\x90"

    for body in (as_text, packed):
        (found,) = prepare_all(handler, "a", Envelopes.of([Envelope.of("m", "Said", body)]))
        assert isinstance(found, Outcome) is (depth > 200)
        if isinstance(found, Outcome):
            assert (found.reason, "200 levels" in str(found.error)) == (Reason.TOO_LARGE, True)


@given(st.text(), st.integers(1, 100))
def test_a_note_is_told_from_what_is_like_one(text, count):
    note = Excess.of("body", text * count).note
    begins = (text * count).encode("utf-8", "surrogatepass")[:1024].decode("utf-8", "replace")

    assert is_note(note)
    assert json.loads(note)["too_large"]["begins"] == begins
    for other in (note[:-2], note.replace("part", "Part"), f" {note}", '{"too_large":{}}', note.encode()):
        assert not is_note(other)


async def forward(_: object) -> None: ...


@pytest.mark.parametrize(
    ("echoes", "length", "expected"),
    [(3, 1, None), (4, 1, "too_large"), (1, 70, None), (1, 100, "too_large"), (-4, 1, "too_large")],
)
@pytest.mark.parametrize("algorithm", ["state-based", "outbox"])
def test_a_handler_publishes_no_more_than_one_message_may(table, algorithm, echoes, length, expected):
    processor = Processor(app, table, forward, algorithm=algorithm, limits=SMALL)

    (outcome,), (again,) = [drive(processor.process(said(echoes=echoes, length=length))) for _ in "ab"]

    assert (outcome.reason, again.reason) == (expected, expected)
    if expected:
        assert "3 messages and 200 bytes" in str(outcome.error)
        assert again == outcome
    else:
        assert len(outcome.outputs) == echoes


def test_the_error_of_a_handler_is_cut_and_says_where_it_was_raised(table):
    (outcome,) = drive(Processor(app, table, forward, limits=SMALL).process(said("fail")))

    assert outcome.reason is Reason.HANDLER_ERROR
    assert len(str(outcome.error)) == SMALL.error
    assert all(text in str(outcome.error) for text in ("characters", "test_sizes.py"))


@given(st.text(min_size=0, max_size=500), st.integers(1, 600))
def test_an_error_is_no_longer_than_it_may_be(error, length):
    found = dead_letter(Envelope("m-1", "Said", "{}"), Reason.TOO_LARGE, error, length=length).error or ""

    assert len(found) <= length
    assert found == error or found.startswith(error[: length // 3])


@pytest.mark.parametrize("type_", ["Said", "Unheard"])
@pytest.mark.parametrize("packed", [False, True])
def test_a_consumer_gets_a_dead_letter_and_the_table_keeps_a_note(table, type_, packed):
    processor = Processor(app, table, forward)
    message = said("x" * 5_000_000, packed=packed)._replace(type=type_)

    (outcome,) = drive(processor.process(message))
    (good,) = drive(processor.process(said(message_id="m-2")))

    assert (outcome.reason, outcome.handler) == (Reason.TOO_LARGE, "Echo" if type_ == "Said" else None)
    assert good.status == "processed"

    async def letters():
        return [found.letter async for found in find_letters(table, Selection())]

    (letter,) = drive(letters())
    assert (letter.reason, letter.message_id) == ("too_large", "m-1")
    assert is_note(letter.envelope.body)


@pytest.mark.parametrize("algorithm", ["state-based", "outbox", "deduplication-store"])
@pytest.mark.parametrize("packed", [False, True], ids=["text", "bytes"])
def test_what_reaches_a_worker_all_the_same_costs_no_other_message_its_outcome(tmp_path, algorithm, packed):
    bodies = [said(text, packed=packed).body for text in ("", "x" * 2_000_000, "")]
    rows = [
        {"message_id": f"m-{number}", "type": "Said", "business_id": "hall", "body": body}
        for number, body in enumerate(bodies)
    ]
    options = BatchOptions(algorithm=algorithm)
    job = FoldJob(app, f"sqlite:///{tmp_path}/store.db", "rooms", BatchContext("night"), options)

    batches = job.fold(routed(app, rows, pa.binary() if packed else None))
    found = [row for batch in batches for row in batch.to_pylist()]

    assert [row["reason"] for row in found] == [None, "too_large", None]
    (large,) = [json.loads(row["delivery"]) for row in found if row["delivery"]]
    assert large["too_large"]["bytes"] == len(bodies[1])
    assert "body" not in large


def test_a_letter_whose_body_was_not_kept_says_so_when_it_is_redriven():
    note = Excess.of("body", "x" * 2_000_000).note
    envelopes = Envelopes.of([Envelope("m-1", "Said", note, "hall"), said()])

    refused, ready = prepare_all(handler, "hall", envelopes, letters=[1, 2])

    assert isinstance(refused, Outcome)
    assert refused.reason is Reason.TOO_LARGE
    assert "not stored" in str(refused.error)
    assert isinstance(ready, Prepared)


@pytest.mark.parametrize("field", [each.name for each in fields(MessageLimits)])
def test_a_limit_is_a_number_that_something_fits_in_and_nobody_reads_deeper_than_200_levels(field):
    with pytest.raises(UsageError, match=field):
        MessageLimits(**{field: 0})
    with pytest.raises(UsageError, match="200"):
        MessageLimits(depth=201)
    assert MessageLimits().described() == ""
    assert MessageLimits(**{field: 7}).described() == f", max_{field}=7"
