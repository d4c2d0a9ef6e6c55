from __future__ import annotations

import copy
import dataclasses
import json
import pickle
from datetime import UTC, datetime
from decimal import Decimal
from uuid import UUID

import pytest

from eventstore import EventData, EventId, Include, Int64, Partition, Stream, connect, drive

EVENT = EventData({"N": 1, "Text": "t"}, id="one", includes=[Include.insert("row", {"M": 2})])
VALUES = ["t", True, 1, Int64(1), 1.5, datetime(2020, 1, 1, tzinfo=UTC), UUID(int=1), b"b"]


def test_an_event_needs_no_properties():
    assert EventData(id="one") == EventData({}, id="one")
    assert EventData().properties == {}


@pytest.mark.parametrize("value", [Decimal(1), 1j, [1], {"a": 1}, (1,), object()])
def test_a_value_that_no_table_holds_is_refused_at_once(value):
    table = drive(connect("memory:").table("games"))
    for make in (
        lambda: EventData({"P": value}),
        lambda: Include.insert("row", {"P": value}),
        lambda: Include.merge("row", {"P": value}),
        lambda: Stream(Partition(table, "p"), properties={"P": value}),
    ):
        with pytest.raises(TypeError, match=r"The property 'P' is a .*, which no table holds"):
            make()


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_a_value_of_each_type_is_taken(value):
    assert EventData({"P": value}).properties == {"P": value}


def test_events_can_be_pickled_copied_and_hashed():
    for made in (pickle.loads(pickle.dumps(EVENT)), copy.copy(EVENT), copy.deepcopy(EVENT)):
        assert made == EVENT
        assert hash(made) == hash(EVENT)
    assert len({EVENT, EventData({"Text": "t", "N": 1}, id="one", includes=EVENT.includes)}) == 1


def test_an_event_is_a_dict_and_json():
    as_dict = dataclasses.asdict(EventData({"N": 1, "Text": "t"}, id="one"))

    assert json.loads(json.dumps(as_dict)) == {
        "properties": {"N": 1, "Text": "t"},
        "id": {"value": "one"},
        "includes": [],
    }


@pytest.mark.parametrize(
    "change",
    [
        lambda properties: properties.__setitem__("N", 2),
        lambda properties: properties.__delitem__("N"),
        lambda properties: properties.update(N=2),
        lambda properties: properties.setdefault("M", 2),
        lambda properties: properties.pop("N"),
        lambda properties: properties.popitem(),
        lambda properties: properties.clear(),
        lambda properties: properties.__ior__({"N": 2}),
    ],
)
def test_properties_cannot_be_changed(change):
    with pytest.raises(TypeError, match="cannot be changed"):
        change(EVENT.properties)

    assert EVENT.properties == {"N": 1, "Text": "t"}


def test_a_copy_of_properties_may_be_changed():
    mine = {**EVENT.properties, "N": 2}

    assert (mine, EVENT.properties["N"]) == ({"N": 2, "Text": "t"}, 1)


def test_an_id_may_be_given_as_text_or_uuid():
    assert EventData(id=UUID(int=1)).id == EventId("00000000-0000-0000-0000-000000000001")
