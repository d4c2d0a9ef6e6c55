"""Parts in C: they are taken where they were built, unless the environment says that Python is to do it."""

import json

import pytest

from handlers.native import PURE_PYTHON, find_native


@pytest.mark.parametrize("value", [None, "", "0"])
def test_a_part_that_is_there_is_taken(monkeypatch, value):
    if value is None:
        monkeypatch.delenv(PURE_PYTHON, raising=False)
    else:
        monkeypatch.setenv(PURE_PYTHON, value)

    assert find_native("json") is json


def test_a_part_that_is_not_there_is_left_out(monkeypatch):
    monkeypatch.delenv(PURE_PYTHON, raising=False)

    assert find_native("runtime.messages._never_built") is None


def test_no_part_is_taken_where_python_is_to_do_it(monkeypatch):
    monkeypatch.setenv(PURE_PYTHON, "1")

    assert find_native("json") is None


def test_the_environment_names_it_as_the_documentation_does():
    assert PURE_PYTHON == "CONSISTENT_MESSAGING_PURE_PYTHON"
