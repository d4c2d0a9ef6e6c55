"""Text of others on a terminal: what would command the terminal is shown, and not obeyed.

Ids, types, errors and bodies come from whoever sends messages. A control character among them could clear the screen,
write to the clipboard, turn the direction of writing or begin a line that looks as if a command had said it. One that
cannot be seen would make an id look like another.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

_COMMANDS = "\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
"""Control characters but for tab and line feed, those that turn or end lines, and halves of characters."""

_UNSEEN = (
    "\xad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200d\u2060-\u2065\u206a-\u206f\u3164\ufe00-\ufe0f\ufeff"
    "\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
"""Characters of no width, as Unicode lists them: an id with one of them would look like another id."""

_IN_LINES = re.compile(f"[{_COMMANDS}{_UNSEEN}]")
_IN_A_LINE = re.compile(f"[\t\n{_COMMANDS}{_UNSEEN}]")


def visible(text: str) -> str:
    """Return text with the escapes of Python in place of control characters; lines stay lines."""
    return _IN_LINES.sub(_escape, text)


def visible_line(text: str) -> str:
    """Return the same on one line."""
    return _IN_A_LINE.sub(_escape, text)


def indented(text: str) -> str:
    """Return the same with all lines but the first indented: none looks as if it were the program's own."""
    return visible(text).replace("\n", "\n  ")


def visible_json(document: Mapping[str, Any]) -> str:
    """Return JSON that says the same with escapes of its own."""
    text = json.dumps(document, indent=2, ensure_ascii=False)
    return _IN_LINES.sub(lambda found: json.dumps(found[0])[1:-1], text)


def _escape(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()
