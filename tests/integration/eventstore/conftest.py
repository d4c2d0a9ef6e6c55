"""One SQLite file, and processes that use it."""

import pytest

from eventstore import connect, drive
from tests.support.processes import programs


@pytest.fixture
def path(tmp_path):
    return tmp_path / "store.db"


@pytest.fixture
def url(path):
    return f"sqlite:///{path}"


@pytest.fixture
def table(url):
    store = connect(url)
    yield drive(store.table("games"))
    drive(store.close())


@pytest.fixture
def start():
    """Start a program in a process of its own."""
    with programs() as start:
        yield start
