"""The stores of a campaign: files of SQLite, or an Azurite that runs meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.plugins.azurite import running_azurite

SQLITE, AZURITE = "SQLite", "Azurite"


@contextmanager
def running_store(name: str) -> Iterator[str | None]:
    """Give the url of a store, None where each batch makes a file of its own."""
    if name == AZURITE:
        with running_azurite("table") as authority:
            yield f"azurite://{authority}"
    else:
        yield None
