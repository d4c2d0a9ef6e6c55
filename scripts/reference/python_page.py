"""The page on the Python API: what the packages make public, from their signatures and docstrings."""

from __future__ import annotations

import re

from scripts.reference.markdown import page
from scripts.reference.source import Public, module_text, public_names

MODULES = (
    "handlers",
    "handlers.testing",
    "handlers.guard",
    "runtime",
    "runtime.publishing",
    "runtime.spark",
    "runtime.tables",
    "eventstore",
    "eventstore.blocking",
)

_INTRODUCTION = """\
What is public, module by module, with its docstrings. What is not listed here may change in any version. The pages
[Determinism](../determinism.md), [Testing handlers](../testing.md), [Operations](../operations.md) and
[The event store](../event-store.md) show how it is used.
"""


def write() -> str:
    """Return the page."""
    return page("Python API", _INTRODUCTION, *map(_module, MODULES))


def _module(name: str) -> str:
    return "\n\n".join([f"## {name}", _prose(module_text(name)), *map(_name, public_names(name))])


def _name(found: Public) -> str:
    parts = [f"### {found.name}", _block(found.signature), _prose(found.text)]
    return "\n\n".join(part for part in [*parts, *map(_member, found.members)] if part)


def _member(found: Public) -> str:
    if found.is_property:
        kind = found.signature.rpartition(" -> ")[2]
        return f"**`{found.name}`** (`{kind}`): {_prose(found.text)}"
    return f"{_block(found.signature)}\n\n{_prose(found.text)}".strip()


def _block(signature: str) -> str:
    return f"```py\n{signature}\n```"


def _prose(text: str) -> str:
    """Return a docstring whose indented code stands in a block."""
    indented = re.compile(r"(?:^ {4,}.*\n?|^\n(?= {4}))+", re.MULTILINE)
    return indented.sub(lambda found: _block(_dedented(found[0])) + "\n", text.strip("\n")).strip()


def _dedented(text: str) -> str:
    return "\n".join(line.removeprefix("    ") for line in text.strip("\n").splitlines())
