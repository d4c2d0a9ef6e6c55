"""How the demo is told: numbered steps, each with the reason for it."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from runtime.cli.console import Screen


class Narration:
    """Counts the steps."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._number = 0

    def begin(self, title: str, why: str) -> None:
        """Begin a step."""
        self._number += 1
        self._screen.show(Text.assemble("\n", (f"{self._number}. {title}", "bold cyan")), Text(why, "dim"))

    def end(self, to_look_at: Sequence[tuple[str, str]]) -> None:
        """Say what to look at next."""
        self._screen.show(Text("\nTo look at next", "bold cyan"))
        for what, command in to_look_at:
            self._screen.show(Text(f"{what}:", "dim"), f"  {command}")
