"""What a user imports from `handlers`: all that is listed is there, all that is there is listed."""

import types

import pytest

import handlers
import handlers.testing


@pytest.mark.parametrize("package", [handlers, handlers.testing])
def test_all_names_what_is_public(package):
    public = {
        name
        for name, value in vars(package).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType)
    }

    assert set(package.__all__) == public
    assert list(package.__all__) == sorted(package.__all__, key=lambda name: (name.islower(), name))


def test_every_error_of_the_package_is_public():
    errors = {name for name, value in vars(handlers.errors).items() if isinstance(value, type)}

    assert errors <= set(handlers.__all__)
