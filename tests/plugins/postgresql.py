"""A PostgreSQL server for tests, on a free port of this machine."""

from collections.abc import Iterator

import pytest

from tests.support.servers import postgresql


@pytest.fixture(scope="session")
def postgresql_url() -> Iterator[str]:
    """Give the url of the database of a PostgreSQL that runs for the whole test session."""
    with postgresql() as url:
        yield url
