"""The reference is made from the code: it has every command, and all that is public has a docstring."""

from __future__ import annotations

import importlib
import inspect
import re

import pytest

from scripts.reference.commands_page import commands
from scripts.reference.pages import _MODULES, PAGES


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_written(name):
    assert PAGES[name]().startswith("# ")


def test_every_command_has_its_place():
    names = {name for name, _, _ in commands()}

    assert {"consistent run", "consistent policy set", "consistent tokens issue"} <= names
    assert names <= set(re.findall(r"^## (.*)$", PAGES["commands.md"](), re.MULTILINE))


@pytest.mark.parametrize("module", _MODULES)
def test_every_public_name_is_described(module):
    found = importlib.import_module(module)
    public = [getattr(found, name) for name in getattr(found, "__all__", [])]

    assert found.__doc__
    assert [each for each in public if inspect.isclass(each) and not inspect.getdoc(each)] == []
    assert [each for each in public if inspect.isfunction(each) and not inspect.getdoc(each)] == []
