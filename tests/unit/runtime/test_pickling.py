"""Errors, deliveries and outcomes cross process borders, and what a user imports from `runtime` is listed."""

import ast
import importlib
import inspect
import pickle
from pathlib import Path

import pytest

import runtime.errors
from runtime import RuntimeFailure
from runtime.algorithms.algorithm import HandlerFailedError

ERRORS = [
    each for name, each in vars(runtime.errors).items() if inspect.isclass(each) and not name.startswith("_")
]


@pytest.mark.parametrize("error", [*ERRORS, HandlerFailedError])
def test_every_error_survives_pickling_has_its_root_in_the_package_and_is_public(error):
    raised = error("one sentence")
    raised.__cause__ = ValueError("why")

    back = pickle.loads(pickle.dumps(raised))

    assert type(back) is error
    assert str(back) == "one sentence"
    if error is not HandlerFailedError:
        assert isinstance(back, RuntimeFailure)
        assert error.__name__ in runtime.__all__
        assert error.__name__ in (runtime.errors.__doc__ or "")


def test_all_names_what_is_public():
    # Names are imported on first use, except errors, and stand in the module for type checkers alone
    body = ast.parse(Path(runtime.__file__).read_text()).body
    (for_types,) = [each for each in body if isinstance(each, ast.If)]
    imports = [each for each in for_types.body if isinstance(each, ast.ImportFrom)]
    public = {alias.name: str(each.module) for each in imports for alias in each.names}

    assert list(runtime.__all__) == sorted([*public, *(each.__name__ for each in ERRORS)])
    for name, module in public.items():
        assert getattr(runtime, name) is getattr(importlib.import_module(module), name)
