"""What is promised by name: public names with signatures, classes of errors, exit codes, planted mistakes."""

import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import eventstore
import handlers
import handlers.testing
import runtime
import runtime.cli
import runtime.spark
import runtime.tables
from tests.golden.scenarios import Facts
from tests.model.catalogue import MISTAKES

PACKAGES: tuple[ModuleType, ...] = (
    eventstore,
    handlers,
    handlers.testing,
    runtime,
    runtime.cli,
    runtime.spark,
    runtime.tables,
)


def names(_: Path) -> Facts:
    """Return the exported names of each package, with the signatures of what can be called."""
    return {
        package.__name__: dict(
            line for name in sorted(package.__all__) for line in _described(name, getattr(package, name))
        )
        for package in PACKAGES
    }


def errors(_: Path) -> Facts:
    """Return the public bases of each exported class of errors, without modules, which may move."""
    exported = [
        value
        for package in PACKAGES
        for value in (getattr(package, name) for name in package.__all__)
        if isinstance(value, type) and issubclass(value, BaseException)
    ]
    return {
        error.__name__: [base.__name__ for base in error.__mro__[1:-1] if base.__name__[0] != "_"]
        for error in sorted(exported, key=lambda each: each.__name__)
    }


def exits(_: Path) -> Facts:
    """Return the exit codes that the command line documents."""
    text = inspect.getdoc(importlib.import_module("runtime.cli.failures")) or ""
    return dict(re.findall(r"^\| (\d+) \| (.+) \|$", text, re.MULTILINE))


def mistakes(_: Path) -> Facts:
    """Return the planted mistakes, each with the invariant that finds it."""
    return {mistake.name: mistake.breaks for mistake in sorted(MISTAKES, key=lambda each: each.name)}


def _described(name: str, value: object) -> Iterator[tuple[str, str]]:
    yield name, _signature(value) if callable(value) else type(value).__name__
    if not isinstance(value, type) or issubclass(value, BaseException):
        return
    for member, found in sorted(vars(value).items()):
        if member.startswith("_"):
            continue
        inner = found.__func__ if isinstance(found, classmethod | staticmethod) else found
        if isinstance(inner, property):
            yield f"{name}.{member}", "property"
        elif inspect.isfunction(inner):
            yield f"{name}.{member}", _signature(inner)


def _signature(value: object) -> str:
    """Return the parameters of what can be called, with defaults but without types."""
    try:
        signature = inspect.signature(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return type(value).__name__
    parameters = [
        each.replace(annotation=inspect.Parameter.empty, default=_default(each.default))
        for each in signature.parameters.values()
    ]
    return str(inspect.Signature(parameters))


def _default(value: object) -> object:
    """Return a default whose text is the same in each process and for each module."""
    is_plain = value is inspect.Parameter.empty or isinstance(value, str | int | float | tuple | None)
    return value if is_plain else _Named(getattr(value, "__name__", type(value).__name__))


class _Named(str):
    __slots__ = ()

    def __repr__(self) -> str:
        return f"<{self}>"


SNAPSHOTS = {"names": names, "errors": errors, "exits": exits, "mistakes": mistakes}
