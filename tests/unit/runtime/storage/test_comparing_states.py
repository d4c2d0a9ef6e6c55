"""What changed between two states, field by field."""

import pytest

from runtime.versions.readable import ABSENT, Change, changes, decode


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({"a": 1}, {"a": 1}, []),
        ({"a": 1, "b": 2}, {"a": 1, "b": 3}, [Change("b", 2, 3)]),
        ({}, {"a": 1}, [Change("a", ABSENT, 1)]),
        ({"a": 1}, {}, [Change("a", 1, ABSENT)]),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 3}}, [Change("a.c", 2, 3)]),
        ({"a": [1, 2]}, {"a": [1, 3]}, [Change("a", [1, 2], [1, 3])]),
        ({"a": None}, {"a": {"b": 1}}, [Change("a", None, {"b": 1})]),
        ({"a": 1}, {"a": 1.0}, [Change("a", 1, 1.0)]),
        ({"a": 1}, {"a": True}, [Change("a", 1, True)]),
        ([1], [2], [Change("", [1], [2])]),
    ],
)
def test_changes(before, after, expected):
    found = changes(before, after)

    assert found == expected
    assert [type(each.after) for each in found] == [type(each.after) for each in expected]


def test_what_is_no_json_is_shown_as_digits():
    assert decode(b'{"a": 1}') == {"a": 1}
    assert decode(b"\xff\x00") == "ff00"
