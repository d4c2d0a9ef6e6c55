"""What a user imports from `runtime`: all that is listed is there, all that is there is listed."""

import ast
import importlib
from pathlib import Path

import runtime
import runtime.errors


def test_all_names_what_is_public():
    # Names are imported on first use, and stand in the module for type checkers alone
    (for_types,) = [
        each for each in ast.parse(Path(runtime.__file__).read_text()).body if isinstance(each, ast.If)
    ]
    imports = [each for each in for_types.body if isinstance(each, ast.ImportFrom)]
    public = {alias.name: str(each.module) for each in imports for alias in each.names}

    assert set(runtime.__all__) == set(public)
    assert all(
        getattr(runtime, name) is getattr(importlib.import_module(module), name)
        for name, module in public.items()
    )
    assert list(runtime.__all__) == sorted(runtime.__all__)


def test_every_error_of_the_package_is_public():
    errors = {name for name, value in vars(runtime.errors).items() if isinstance(value, type)}

    assert errors <= set(runtime.__all__)


def test_every_error_stands_in_the_tree_of_its_module():
    assert runtime.errors.__doc__ is not None
    errors = {name for name, value in vars(runtime.errors).items() if isinstance(value, type)}

    assert all(name in runtime.errors.__doc__ for name in errors)
