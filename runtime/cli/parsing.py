"""A command that refuses an option which is given twice, where all but the last value would be lost."""

from __future__ import annotations

from collections import Counter
from typing import Any

from typer.core import TyperCommand, TyperOption


class OnceOnly(TyperCommand):
    """A command whose options are given once, but for those that take several values."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - typer shows no type for it
        """Refuse what is given twice, and parse the rest as always."""
        _, _, given = self.make_parser(ctx).parse_args(args=list(args))
        for option, times in Counter(given).items():
            if times > 1 and isinstance(option, TyperOption) and not (option.multiple or option.is_flag):
                ctx.fail(f"{option.opts[0]} is given {times} times: give it once.")
        return super().parse_args(ctx, args)
