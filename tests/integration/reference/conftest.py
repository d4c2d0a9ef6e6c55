"""Every store, a table of its own for each test, and a game to play."""

import itertools
import os

import pytest

_numbers = itertools.count(1)


@pytest.fixture(params=["memory", "sqlite", pytest.param("azurite", marks=pytest.mark.thorough)])
def store_url(request, tmp_path):
    if request.param == "azurite":
        return request.getfixturevalue("azurite_url")
    return {"memory": f"memory:{tmp_path.name}", "sqlite": f"sqlite:///{tmp_path}/store.db"}[request.param]


@pytest.fixture(params=["sqlite", pytest.param("azurite", marks=pytest.mark.thorough)])
def shared_url(request, tmp_path):
    return (
        request.getfixturevalue("azurite_url")
        if request.param == "azurite"
        else f"sqlite:///{tmp_path}/store.db"
    )


@pytest.fixture
def table():
    return f"reference{os.getpid()}x{next(_numbers)}"
