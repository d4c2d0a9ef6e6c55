"""Options are declared once: as the fields of the dataclasses that the Python API takes.

A field that `option` makes carries its default and one line of help. `runtime.cli.options` makes an option of the
command line of it.
"""

from __future__ import annotations

from dataclasses import MISSING, field
from typing import Any


def option(text: str, *, default: Any = MISSING, is_secret: bool = False, **details: Any) -> Any:  # noqa: ANN401
    """Return the field of a dataclass that the command line takes too; without a default it must be given.

    `text` is its help. The details are those of `typer.Option`, `name` where the option is not named like the field,
    `parse="duration"` for an `int` of microseconds, and `parse="size"` for one of bytes.
    """
    metadata = {"help": text, **details}
    if default is dict:
        return field(default_factory=dict, repr=not is_secret, metadata=metadata)
    return field(default=default, repr=not is_secret, metadata=metadata)
