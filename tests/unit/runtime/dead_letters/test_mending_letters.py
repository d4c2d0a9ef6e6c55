"""Letters are exported as lines of JSON, mended by hand, and given to a redrive."""

import json
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime import Envelope
from runtime.dead_letters import Edits, FoundLetter, RedriveRequest, Selection, to_line
from runtime.errors import UsageError
from runtime.messages.envelope import id_key
from runtime.messages.outcome import Reason
from runtime.versions.dead_letter_rows import Letter, LetterState

SENT = Envelope("m-1", "Parcel", '{"box": "b"}', "b", 7, 1_767_225_600_000_001, {"trace": "t"})


def found(envelope: Envelope = SENT, number: int = 1, **fields: Any) -> FoundLetter:
    key = id_key(envelope.message_id or "")
    letter = Letter(
        number, LetterState.WAITING, key, b"", 0, envelope, Reason.INVALID_BODY, "no name", 3, "batch", 1, 9
    )
    return FoundLetter(letter, **{"handler": "Boxes", "business_id": "b", **fields})


def mended(letter: FoundLetter, **changes: Any) -> Envelope | None:
    line = json.loads(to_line(letter)) | changes
    return Edits([json.dumps(line)]).mended(letter)


texts = st.text(st.characters(codec=None), max_size=20)
envelopes = st.builds(
    Envelope,
    texts,
    texts,
    texts | st.binary(max_size=20),
    st.none() | texts,
    st.none() | st.integers(-(2**63), 2**63 - 1),
    st.none() | st.integers(-(2**62), 2**62),
    st.none() | st.dictionaries(texts, texts, max_size=2),
)


@given(envelopes)
def test_a_line_that_nobody_edited_changes_nothing(envelope: Envelope):
    letter = found(envelope)

    line = to_line(letter)

    line.encode()
    assert Edits([line]).mended(letter) is None


@pytest.mark.parametrize(
    ("changes", "field", "value"),
    [
        ({"body": '{"box": "b", "name": "n"}'}, "body", '{"box": "b", "name": "n"}'),
        ({"body": {"box": "b", "name": "n"}}, "body", '{"box": "b", "name": "n"}'),
        ({"type": "Letter"}, "type", "Letter"),
        ({"business_id": None}, "business_id", None),
        ({"sequence": 8}, "sequence", 8),
        ({"enqueued_at": "2026-01-01T00:00:00.000002+00:00"}, "enqueued_at", 1_767_225_600_000_002),
        ({"headers": {}}, "headers", {}),
        ({"message_id": "7D444840-9DC0-11D1-B245-5FFDCE74FAD2"}, "message_id", "7d444840-9dc0-11d1-b245-5ffdce74fad2"),
    ],
)  # fmt: skip
def test_what_was_edited_is_changed_and_nothing_else(changes: dict[str, Any], field: str, value: Any):
    assert mended(found(), **changes) == SENT._replace(**{field: value})


@pytest.mark.parametrize(
    ("body", "is_object"),
    [
        ('{"box":"b","n":1.5}', True),
        ("{}", True),
        ('{"n": 12345678901234567890123, "of": {"a": [null, true]}}', True),
        ('{"n": 0.10000000000000000555}', False),
        ('{"n": 1.10}', False),
        ('{"n": NaN}', False),
        ('{"of": {"n": 1, "n": 2}}', False),
        ("[1]", False),
        ('"text"', False),
        ("no JSON", False),
    ],
)
def test_a_body_is_an_object_to_edit_where_that_loses_nothing(body: str, is_object: bool):
    letter = found(SENT._replace(body=body))
    line = json.loads(to_line(letter))

    assert isinstance(line["body"], dict) is is_object
    assert line["body"] == (json.loads(body) if is_object else body)
    if is_object:
        turned = dict(reversed(line["body"].items()))
        assert mended(letter, body=turned) is None
        assert mended(letter, body={**turned, "n": True}) is not None


def test_a_body_of_bytes_is_in_hexadecimal_digits_and_may_become_json():
    packed = found(SENT._replace(body=msgpack.packb({"box": "b"})))

    assert mended(packed, body=msgpack.packb({"box": "c"}).hex()) == SENT._replace(
        body=msgpack.packb({"box": "c"})
    )
    assert mended(packed, body={"box": "c"}) == SENT._replace(body='{"box": "c"}')


@pytest.mark.parametrize(
    "changes",
    [
        {"sequence": "seven"},
        {"enqueued_at": "soon"},
        {"enqueued_at": "2026-01-01T00:00:00"},
        {"headers": ["a"]},
        {"type": 7},
        {"body": "no digits", "packed": True},
    ],
)
def test_what_no_message_holds_is_refused(changes: dict[str, Any]):
    with pytest.raises(UsageError, match="The edited letter of 'm-1' is invalid"):
        mended(found(), **changes)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"{", "Line 1 of the edited letters is not valid JSON"),
        (b"\n[]", "Line 2 of the edited letters is not an object"),
        (b'{"body": "x"}', "Line 1 of the edited letters is not an object"),
        (b'{"letter": "1"}\n{"letter": "1"}', "Line 2 of the edited letters repeats an earlier letter"),
        (b"\xff", "are not UTF-8"),
        (b'{"message_id": "\xc3"}', "are not UTF-8"),
        ('{"message_id": "a"}'.encode("utf-16"), "are not UTF-8"),
    ],
)
def test_lines_that_cannot_be_used_are_refused(content: bytes, problem: str):
    with pytest.raises(UsageError, match=problem):
        Edits.of(content)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize(
    "text", ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\ufeff", "\r\n", "\ud800"]
)
def test_a_file_has_a_line_for_each_letter_whatever_their_texts_hold(text, mark, end):
    letters = [
        found(Envelope(f"m-{number}{text}", "Parcel", f'"{text}"', "b"), number=number) for number in (1, 2)
    ]

    edits = Edits.of((mark + "".join(to_line(letter) + end for letter in letters)).encode())

    assert len(edits) == len(letters)
    assert all(edits.has(letter) and edits.mended(letter) is None for letter in letters)


def test_a_line_is_for_one_letter_only_and_may_choose_it():
    edits = Edits([to_line(found())])

    assert not edits.has(found(number=2))
    assert not edits.has(found(handler="Other"))
    assert not edits.has(found(business_id="c"))
    assert not RedriveRequest(Selection(), edits, only_edited=True).takes(found(number=2))
    assert RedriveRequest(Selection(), edits, only_edited=True).takes(found())
    assert RedriveRequest(Selection(), edits).takes(found(number=2))


def test_lines_whose_letter_is_not_there_are_told():
    edits = Edits([to_line(found()), to_line(found(number=2))])
    edits.mended(found())

    with pytest.raises(UsageError, match="1 of 2 edited lines match no selected letter"):
        edits.check_used()
