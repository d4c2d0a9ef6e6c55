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

from runtime.versions.readable import HIDDEN, HIDDEN_IN_LINE

Document = dict[str, Any]

MOST = 2_000
"""How many characters of a value a page shows. The rest is one click away, as plain text."""

_BRIEF = 120


def as_json(value: Any, indent: int | None = None, *, is_ascii: bool = False) -> str:  # noqa: ANN401 - of a document
    """Format a value as JSON. Times are ISO 8601 in UTC."""
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
    """Show a value on several lines, a long one with a link to the full text. `path`: its place in the document."""
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
    """Show a time given as text, even one outside the calendar."""
    try:
        return marked(None if value is None else datetime.fromisoformat(value))
    except ValueError:
        return marked(value)


def counted(value: float | None) -> str:
    """Format a number with thousands separators, None as an empty string."""
    return "" if value is None else f"{value:,.0f}"


def brief(value: Any) -> Markup:  # noqa: ANN401 - of a document
    """Show the beginning of a value as JSON on one line."""
    text = as_json(value)
    return marked(text if len(text) <= _BRIEF else f"{text[:_BRIEF]}…")


def flat(text: object) -> Markup:
    """Escape text for titles and SVG, where hidden characters become codes without markup."""
    return escape(HIDDEN_IN_LINE.sub(lambda found: f"[U+{ord(found[0]):04X}]", str(text)))


_PAGES = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "templates"),
    autoescape=True,
    finalize=marked,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    extensions=["jinja2.ext.do"],
)
_PAGES.filters |= {each.__name__: each for each in (cut, raw, flat, brief, when)} | {"n": counted}


def render(template: str, document: Document, root: str, query: Mapping[str, str], **more: Any) -> str:  # noqa: ANN401
    """Return the page of a document. `query` are the parameters of the page's URL."""

    def link(page: str, /, **parameters: object) -> str:
        given = {name: str(value) for name, value in parameters.items() if value not in (None, "")}
        return f"{root}/{page}" + (f"?{urlencode(given, errors='replace')}" if given else "")

    def here(**changed: object) -> str:
        return link(more["path"], **{**query, **changed})

    page = _PAGES.get_template(template)
    return page.render(document, link=link, here=here, query=query, **more)
