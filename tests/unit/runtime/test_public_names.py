"""What a user imports from `runtime`: all that is listed is there, all that is there is listed."""

import types

import runtime
import runtime.errors


def test_all_names_what_is_public():
    public = {
        name
        for name, value in vars(runtime).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType)
    }

    assert set(runtime.__all__) == public
    assert list(runtime.__all__) == sorted(runtime.__all__)


def test_every_error_of_the_package_is_public():
    errors = {name for name, value in vars(runtime.errors).items() if isinstance(value, type)}

    assert errors <= set(runtime.__all__)


def test_every_error_stands_in_the_tree_of_its_module():
    assert runtime.errors.__doc__ is not None
    errors = {name for name, value in vars(runtime.errors).items() if isinstance(value, type)}

    assert all(name in runtime.errors.__doc__ for name in errors)
