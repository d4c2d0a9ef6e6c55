"""Senders by name: from `module:function`, as it stands on the command line, to the function."""

from __future__ import annotations

import inspect
from collections.abc import Callable

from runtime.cli.apps import hint_at, import_module, split_spec
from runtime.errors import UsageError

_FORM = "A sender is named MODULE:FUNCTION, like post:send"
_SHAPE = "write `def {name}(message): ...` or `async def {name}(message): ...`"


def load_sender(spec: str) -> Callable[..., object]:
    """Import the module of `module:function` and return the function, or the object that is called like one.

    The working directory is searched last. Raises `UsageError` when the text is not of that form, when there is no such
    function, and when it does not take one argument; `AppNotFoundError` when the module cannot be imported.
    """
    name, attribute = split_spec(spec, _FORM)
    module = import_module(name)
    if not hasattr(module, attribute):
        names = [each for each, value in vars(module).items() if inspect.isfunction(value)]
        known = f" Its functions: {', '.join(names)}." if names else ""
        raise UsageError(f"The module {name} has no function {attribute}.{known}{hint_at(name)}")
    sender: Callable[..., object] = getattr(module, attribute)
    shape = _SHAPE.format(name=attribute)
    if isinstance(sender, type) or not callable(sender):
        raise UsageError(f"{spec} is no function but {_kind(sender)}: {shape}.")
    try:
        inspect.signature(sender).bind(object())
    except TypeError as error:
        raise UsageError(f"The sender {spec} is called with one message ({error}): {shape}.") from error
    return sender


def _kind(value: object) -> str:
    return f"the class {value.__name__}" if isinstance(value, type) else f"of type {type(value).__name__}"
