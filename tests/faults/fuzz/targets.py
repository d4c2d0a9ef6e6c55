"""What is fuzzed: functions that take any bytes, and raise nothing but what they promise.

The bytes of a target are as near to what is parsed as they can be: what is compressed in the store is compressed here,
so that a changed byte is not merely a broken frame.
"""

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

import msgpack
from pydantic import ValidationError

from eventstore import Value
from eventstore.port import Row
from handlers import State
from handlers.codec import Codec
from handlers.errors import CodecError
from runtime.errors import StoredDataError
from runtime.messages.envelope import Envelope
from runtime.messages.outcome import Outcome
from runtime.messages.parsing import business_id_of, prepare
from runtime.versions.head import Segment, Tail, read_tail
from runtime.versions.index import KEY_BYTES, id_hashes_of, pack, read_index_row
from runtime.versions.limits import HASH_BYTES
from runtime.versions.run import Commit, compress, pack_columns, read_index, read_run
from tests.faults.hostile.app import app
from tests.unit.runtime.runs import body_of, run_of, stored, version, with_body

PACKED, TEXT = 0, 1
"""The first byte of an envelope: whether msgpack or text follows."""


@dataclass(frozen=True, slots=True)
class Target:
    """A function to be fuzzed, which says whether it took its input, and inputs that are well formed."""

    name: str
    run: Callable[[bytes], bool]
    seeds: Sequence[bytes]


class Everything(State):
    text: str = ""
    number: int = 0
    fraction: float = 0.0
    raw: bytes = b""
    texts: frozenset[str] = frozenset()
    pairs: tuple[tuple[str, int], ...] = ()
    maybe: str | None = None


_CODEC = Codec(Everything)
_FULL = Everything(
    text="é\U0001f600",
    number=2**70,
    fraction=0.1,
    raw=b"\xff",
    texts=frozenset("ba"),
    pairs=(("a", 1),),
    maybe="x",
)
_VERSIONS = (version(1, after=b'{"count":1}', headers={"a": "b"}), version(2, enqueued_at=9))
_RUN = run_of(*_VERSIONS)
_EVENT = stored(_RUN)
_KEYS = [number.to_bytes(16, "big") for number in (1, 2)]


def _envelope(data: bytes) -> bool:
    """Expect a delivery that is prepared, or a dead letter that can be written as a line of JSON."""
    body = data[1:] if data[:1] == bytes([PACKED]) else data[1:].decode("utf-8", "surrogateescape")
    taken = False
    for handler in app.handlers.values():
        for route in handler.routes.values():
            envelope = Envelope("m", route.names[0], body)
            prepared = prepare(handler, business_id_of(route, envelope), envelope)
            if isinstance(prepared, Outcome):
                assert prepared.error
                prepared.error.encode()
                assert json.loads(prepared.envelope.to_json())["message_id"] == "m"
            else:
                taken = True
    return taken


def _codec(data: bytes) -> bool:
    """Expect a state that is refused, or has one form from then on."""
    with suppress(ValidationError, CodecError):
        model = _CODEC.decode(data)
        model, encoded = _CODEC.canonical(model, _CODEC.encode(model))
        assert _CODEC.canonical(model, encoded)[1] == encoded
        return True
    return False


def _tail(data: bytes) -> bool:
    """Expect a tail that is refused, or is the same when it is stored and read again. Its checksum fits."""
    with suppress(StoredDataError):
        tail = read_tail(with_body(data))
        tail.indexes()
        run = tail.run()
        assert read_tail(tail.pack()).run() == run
        return True
    return False


def _run(data: bytes) -> bool:
    """Expect a run that is refused or read; its states stand uncompressed here."""
    event = replace(_EVENT, properties={**_EVENT.properties, "Data": compress(data)})
    with suppress(StoredDataError):
        read_index(event)
        run = read_run(event)
        run.states_before()
        assert len(run.versions) == len(_VERSIONS)
        return True
    return False


def _index(data: bytes) -> bool:
    """Expect an index row that is refused, or tells where each version is; hashes come first, then the ends of runs."""
    size = HASH_BYTES * len(_KEYS)
    numbers: dict[str, Value] = {"First": 1, "FirstEvent": 1, "Count": len(_KEYS), "Ends": data[size:]}
    with suppress(StoredDataError):
        hashes = {"Hashes": data[:size], "Key": bytes(KEY_BYTES)}
        row = read_index_row(Row("Diary-d", "SS-IDX-0000000000000001", "e", {**numbers, **hashes}))
        for position in range(row.count):
            row.locate(position)
        return True
    return False


def _seeds_of_envelopes() -> list[bytes]:
    bodies = [
        {"name": "n", "amount": 2},
        {"number": 7},
        {"key": "7d444840-9dc0-11d1-b245-5ffdce74fad2", "what": "x"},
    ]
    packed = [bytes([PACKED]) + msgpack.packb(body) for body in bodies]
    return packed + [bytes([TEXT]) + json.dumps(body).encode() for body in bodies]


def _seeds_of_tails() -> list[bytes]:
    segment = Segment.of(_RUN.versions, 1, b"{}", Commit(2, "night", 7, 3))
    one = Tail(1, 1, b"{}").plus(segment)
    tails = (one, one.plus(segment))
    return [body_of(tail) for tail in tails]


TARGETS = {
    target.name: target
    for target in (
        Target("envelope", _envelope, _seeds_of_envelopes()),
        Target("codec", _codec, [_CODEC.encode(_FULL), b"{}"]),
        Target("tail", _tail, _seeds_of_tails()),
        Target("run", _run, [pack_columns(1, b"{}", _RUN.versions)]),
        Target(
            "index", _index, [id_hashes_of(_KEYS, bytes(KEY_BYTES)) + pack(ends) for ends in ([2], [1, 2])]
        ),
    )
}

CORPORA = Path(__file__).parent / "corpus"
"""A folder of inputs for each target, named by their digests, that reach new code."""


def inputs(name: str) -> list[bytes]:
    kept = sorted((CORPORA / name).glob("*"))
    return [*TARGETS[name].seeds, *(path.read_bytes() for path in kept)]


def keep(name: str, data: bytes) -> Path:
    path = CORPORA / name / sha256(data).hexdigest()[:16]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path
