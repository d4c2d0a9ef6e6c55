"""A command that refuses a second value where one may expect that both count, and all but the last would be lost."""

from __future__ import annotations

from collections import Counter
from typing import Any

import typer
from typer.core import TyperCommand

_OF_PYDANTIC = "Value error, "
"""What it puts before the sentences of others."""

_WHAT_IS_TAKEN = frozenset({"--messages", "--message", "--stream", "--handler", "--reason", "--id", "--edit"})
"""Options that choose what is worked on; of others, as everywhere, the last value counts."""


class OnceOnly(TyperCommand):
    """A command in which an option that chooses what is worked on is given once."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - typer shows no type for it
        """Refuse what is given twice, and parse the rest as always."""
        _, _, given = self.make_parser(ctx).parse_args(args=list(args))
        for option, times in Counter(given).items():
            name = option.opts[0]
            if times > 1 and name in _WHAT_IS_TAKEN and not getattr(option, "multiple", False):
                folder = (
                    " A log may be a folder, or a pattern such as 'logs/*.jsonl'."
                    if name == "--messages"
                    else ""
                )
                ctx.fail(f"{name} is given {times} times, and takes one value.{folder}")
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter as error:
            error.message = error.message.removeprefix(_OF_PYDANTIC)
            raise
