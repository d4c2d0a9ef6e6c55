"""The backends for random programs, and a line about them at the end of the run."""

import asyncio
from collections.abc import Iterator
from itertools import count

import pytest

from eventstore import connect
from tests.differential.compared import ComparedTable, Tally

_TALLY = pytest.StashKey[Tally]()


class Backends:
    def __init__(self, urls: tuple[str, ...], runner: asyncio.Runner, tally: Tally) -> None:
        self._stores = [connect(url) for url in urls]
        self._runner = runner
        self._tally = tally
        self._numbers = count(1)

    def new_table(self) -> ComparedTable:
        name = f"program{next(self._numbers)}"
        tables = [self._runner.run(store.table(name)) for store in self._stores]
        return ComparedTable(tables, self._runner, self._tally)

    def close(self) -> None:
        for store in self._stores:
            self._runner.run(store.close())


@pytest.fixture(scope="session")
def backends(azurite_url, postgresql_url, tmp_path_factory, request) -> Iterator[Backends]:
    """Open a store of each backend, in the order of their names."""
    tally = request.config.stash.setdefault(_TALLY, Tally())
    file = tmp_path_factory.mktemp("differential") / "store.db"
    urls = ("memory:", f"sqlite:///{file}", azurite_url, postgresql_url)
    with asyncio.Runner() as runner:
        backends = Backends(urls, runner, tally)
        yield backends
        backends.close()


def pytest_terminal_summary(terminalreporter, config):
    tally = config.stash.get(_TALLY, None)
    if tally is None:
        return
    terminalreporter.write_line(
        f"Backends compared: {tally.programs:,} programs, {tally.calls:,} calls, {tally.refused:,} of them refused."
    )
