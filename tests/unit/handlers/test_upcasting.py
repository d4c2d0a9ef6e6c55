"""A state that an older version of the code stored is brought to today's schema, step by step."""

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


class Weighed(State, version=2, upcasters={1: lambda fields: {"weight": 5, "left": True, **fields}}):
    weight: float = 0.0


class Recent(State, version=4, upcasters={2: add_name, 3: add_name}):
    name: str = ""


@pytest.mark.parametrize(
    ("state", "version", "stored", "upcast"),
    [
        (Data, 1, b'{"count":7}', b'{"rings":7,"name":"unnamed"}'),
        (Data, 2, b'{"rings":7}', b'{"rings":7,"name":"unnamed"}'),
        (Data, 3, b'{"rings":7,"name":"Emmanuel"}', b'{"rings":7,"name":"Emmanuel"}'),
        (Weighed, 1, b"{}", b'{"weight":5.0}'),
    ],
)
def test_a_state_goes_through_every_upcaster_from_its_version_on(state, version, stored, upcast):
    assert StateCodec(state).upcast(stored, version) == upcast


@pytest.mark.parametrize(
    ("state", "version", "stored", "sentence"),
    [
        (
            Data,
            4,
            b"{}",
            "Data was stored in schema version 4; this code knows versions up to 3: deploy newer",
        ),
        (
            Recent,
            1,
            b"{}",
            "Recent was stored in schema version 1, and there is no upcaster from version 1: ",
        ),
        (Data, 1, b"{}", "The upcaster of Data from version 1 failed: KeyError: 'count'$"),
        (Data, 1, b'{"count": "many"}', "Data holds a value that its type does not allow: rings: "),
    ],
)
def test_a_state_that_cannot_be_brought_to_todays_schema_is_refused(state, version, stored, sentence):
    with pytest.raises(CodecError, match=f"^{sentence}"):
        StateCodec(state).upcast(stored, version)


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
    App(bell(state=Recent))
