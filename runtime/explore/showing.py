"""Turns documents into pages, JSON or plain text. Text of senders is escaped, and hidden characters become visible."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined, pass_context
from jinja2.runtime import Context
from markupsafe import Markup, escape

from runtime.explore.drawing import bars, causes, dots, flat
from runtime.versions.readable import HIDDEN, HIDDEN_IN_LINE

Document = dict[str, Any]

MOST = 2_000
"""The characters of a value that a page shows. The rest is one click away, as plain text."""

_BRIEF = 120

_PASSWORD = re.compile(r"(://[^/\s:@]*:)[^/\s@]+@")
_NAMED_SECRET = re.compile(r"(?i)\b((?:\w*(?:key|password|secret|signature|token)|sig)=)[^&;,\s'\"]+")


def without_secrets(text: str) -> str:
    """Replace passwords and keys in URLs and connection strings."""
    return _NAMED_SECRET.sub(r"\1...", _PASSWORD.sub(r"\1...@", text))


def as_json(value: Any, indent: int | None = None, *, is_ascii: bool = False) -> str:  # noqa: ANN401 - of a document
    """Format JSON. Times are ISO 8601 in UTC."""
    return json.dumps(value, indent=indent, ensure_ascii=is_ascii, default=_for_json)


def _for_json(value: object) -> str:
    return value.isoformat().replace("+00:00", "Z") if isinstance(value, datetime) else str(value)


def plain(document: Any, path: str) -> str:  # noqa: ANN401 - of a document
    """Return the value at a path such as `versions/3/state`, as text. Raises `LookupError` and `ValueError`."""
    for name in path.split("/"):
        document = document[int(name)] if isinstance(document, list) else document[name]
    return document if isinstance(document, str) else as_json(document, 2)


def marked(value: Any, hidden: re.Pattern[str] = HIDDEN_IN_LINE) -> Markup:  # noqa: ANN401 - of a document
    """Return escaped text, in which hidden and control characters are visible codes."""
    match value:
        case Markup():
            return value
        case None:
            return Markup('<span class="none">none</span>')
        case bool():
            return Markup("yes" if value else "no")
        case datetime():
            shown = value.isoformat(" ", "milliseconds").removesuffix("+00:00")
            return Markup(f'<time datetime="{_for_json(value)}">{shown}</time>')
        case str():
            text = value
        case dict() | list():
            text = as_json(value)
        case _:
            text = str(value)
    shown = str(escape(text[:MOST]))
    rest = f'<span class="rest"> … {len(text) - MOST:,} characters more</span>' if len(text) > MOST else ""
    return Markup(hidden.sub(lambda found: f'<mark class="code">U+{ord(found[0]):04X}</mark>', shown) + rest)


@pass_context
def cut(context: Context, value: Any, path: str) -> Markup:  # noqa: ANN401 - of a document
    """Show a value in lines, with a link to the whole if it is long. `path` is its place in the document."""
    text = value if isinstance(value, str) else as_json(value, 2)
    shown = marked(text, HIDDEN)
    link = (
        Markup(' <a href="{}">whole value</a>').format(context["here"](text=path)) if len(text) > MOST else ""
    )
    return Markup("<pre tabindex=0>{}</pre>{}").format(shown, link)


def raw(value: object) -> Markup:
    """Return text for an attribute of a form, escaped and otherwise unchanged."""
    return escape(str(value).encode("utf-8", "replace").decode())


def when(value: str | None) -> Markup:
    """Show a time that is text, as a letter has it, which may be outside the calendar."""
    try:
        return marked(None if value is None else datetime.fromisoformat(value))
    except ValueError:
        return marked(value)


def counted(value: float | None) -> str:
    """Format a number."""
    return "" if value is None else f"{value:,.0f}"


def in_units(size: int | None) -> str:
    """Format a number of bytes."""
    return "over 32 KiB" if size is None else f"{size / 1024:,.1f} KiB" if size >= 1024 else f"{size} bytes"  # noqa: PLR2004


def brief(value: Any) -> Markup:  # noqa: ANN401 - of a document
    """Show the beginning of a value as JSON on one line."""
    text = as_json(value)
    return marked(text if len(text) <= _BRIEF else f"{text[:_BRIEF]}…")


_PAGES = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "templates"),
    autoescape=True,
    finalize=marked,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_PAGES.filters |= {
    "cut": cut,
    "raw": raw,
    "flat": flat,
    "brief": brief,
    "when": when,
    "n": counted,
    "size": in_units,
}
_PAGES.globals |= {"bars": bars, "dots": dots, "causes": causes}


def render(template: str, document: Document, root: str, query: Mapping[str, str], **more: Any) -> str:  # noqa: ANN401
    """Return the page of a document. `query` are the parameters of its own address."""

    def link(page: str, /, **parameters: object) -> str:
        given = {name: str(value) for name, value in parameters.items() if value not in (None, "")}
        return f"{root}/{page}" + (f"?{urlencode(given, errors='replace')}" if given else "")

    def here(**changed: object) -> str:
        return link(more["path"], **{**query, **changed})

    page = _PAGES.get_template(template)
    return page.render(document, link=link, here=here, query=query, **more)
