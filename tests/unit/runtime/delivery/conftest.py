import pytest

from tests.unit.runtime.delivery.office import Office


@pytest.fixture
def office(tmp_path) -> Office:
    return Office(tmp_path)
