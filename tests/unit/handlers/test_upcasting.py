"""A state that an older version of the code stored is brought to today's schema, step by step."""

import json

import pytest

from handlers import App, AppError, CodecError, State
from handlers.message import StateCodec
from tests.unit.handlers.bell import bell


def rename_count(fields: dict) -> dict:
    return {"rings": fields["count"]}


def add_name(fields: dict) -> dict:
    return {**fields, "name": "unnamed"}


class Data(State, version=3, upcasters={1: rename_count, 2: add_name}):
    rings: int = 0
    name: str = ""


def test_a_state_goes_through_every_upcaster_from_its_version_on():
    codec = StateCodec(Data)

    assert codec.upcast(b'{"count":7}', 1) == b'{"rings":7,"name":"unnamed"}'
    assert codec.upcast(b'{"rings":7}', 2) == b'{"rings":7,"name":"unnamed"}'


def test_a_state_of_todays_version_is_left_as_it_is():
    stored = b'{"rings":7,"name":"Emmanuel"}'

    assert StateCodec(Data).upcast(stored, 3) is stored


def test_what_upcasters_give_is_put_in_the_form_in_which_it_would_be_stored():
    class Weighed(State, version=2, upcasters={1: lambda fields: {"weight": 5, "left": True, **fields}}):
        weight: float = 0.0

    assert StateCodec(Weighed).upcast(b"{}", 1) == b'{"weight":5.0}'


def test_a_state_stored_by_newer_code_is_refused():
    with pytest.raises(
        CodecError,
        match=r"^Data was stored in schema version 4; this code knows versions up to 3: deploy newer code.$",
    ):
        StateCodec(Data).upcast(b"{}", 4)


def test_a_state_older_than_the_oldest_upcaster_is_refused():
    class Recent(State, version=3, upcasters={2: add_name}):
        name: str = ""

    with pytest.raises(
        CodecError,
        match=r"^Recent was stored in schema version 1, and there is no upcaster from version 1: bring it back.$",
    ):
        StateCodec(Recent).upcast(b"{}", 1)


def test_an_upcaster_that_fails_is_named():
    with pytest.raises(CodecError, match=r"^The upcaster of Data from version 1 failed: KeyError: 'count'$"):
        StateCodec(Data).upcast(b"{}", 1)


def test_an_upcaster_that_gives_no_valid_state_is_refused():
    with pytest.raises(CodecError, match=r"^Data holds a value that its type does not allow: rings: "):
        StateCodec(Data).upcast(json.dumps({"count": "many"}).encode(), 1)


@pytest.mark.parametrize(
    ("version", "upcasters", "steps"),
    [
        (3, {1: add_name}, "2"),
        (4, {1: add_name, 3: add_name}, "2"),
        (2, {}, "1"),
        (2, {1: add_name, 2: add_name}, "2"),
        (1, {1: add_name}, "1"),
        (0, {}, "an int from 1"),
    ],
)
def test_a_gap_between_schema_versions_is_refused(version, upcasters, steps):
    class Gapped(State, version=version, upcasters=upcasters):
        name: str = ""

    expected = rf"^Gapped has schema version {version}: .*\b{steps}\b"
    with pytest.raises(AppError, match=expected):
        App(bell(state=Gapped))


def test_old_upcasters_may_be_dropped_from_the_oldest_on():
    class Recent(State, version=4, upcasters={2: add_name, 3: add_name}):
        name: str = ""

    App(bell(state=Recent))
