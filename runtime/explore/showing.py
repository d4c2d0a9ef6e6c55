"""Turns documents into pages with small drawings, into JSON or plain text.

Text of senders is escaped, and hidden characters become visible. Drawings are SVG without scripts and inline styles,
each with a text alternative.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
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

_PASSWORD = re.compile(r"(://[^/\s:@]*:)[^/\s@]+@")
_NAMED_SECRET = re.compile(r"(?i)\b((?:\w*(?:key|password|secret|signature|token)|sig)=)[^&;,\s'\"]+")


def without_secrets(text: str) -> str:
    """Replace passwords and keys in URLs and connection strings."""
    return _NAMED_SECRET.sub(r"\1...", _PASSWORD.sub(r"\1...@", text))


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


def in_units(size: int | None) -> str:
    """Format a number of bytes. None means more than 32 KiB."""
    return "over 32 KiB" if size is None else f"{size / 1024:,.1f} KiB" if size >= 1024 else f"{size} bytes"  # noqa: PLR2004


def brief(value: Any) -> Markup:  # noqa: ANN401 - of a document
    """Show the beginning of a value as JSON on one line."""
    text = as_json(value)
    return marked(text if len(text) <= _BRIEF else f"{text[:_BRIEF]}…")


_WIDTH, _HEIGHT, _BELOW = 640, 120, 16
_SHORT, _FEWEST = 24, 12


def bars(title: str, rows: Sequence[tuple[str, str, Mapping[str, float]]], kinds: Sequence[str]) -> Markup:
    """Draw stacked bars, one for each row: its label, its link, and its values by kind."""
    most = max((sum(values.get(kind, 0) for kind in kinds) for _, _, values in rows), default=0) or 1
    step = _WIDTH / max(len(rows), _FEWEST)
    parts = []
    for number, (label, href, values) in enumerate(rows):
        top, drawn = float(_HEIGHT), []
        for position, kind in enumerate(kinds):
            height = values.get(kind, 0) * (_HEIGHT - 4) / most
            if height:
                top -= max(height, 1)
                drawn.append(
                    f'<rect class="kind{position}" x="{number * step + 1:.1f}" y="{top:.1f}" '
                    f'width="{max(step - 2, 1):.1f}" height="{max(height, 1):.1f}"/>'
                )
        shown = ", ".join(
            f"{values[kind]:,.0f} {kind.replace('_', ' ')}" for kind in kinds if values.get(kind)
        )
        parts.append(
            f'<a href="{escape(href)}"><title>{flat(label)}: {flat(shown or "none")}</title>'
            f'<rect class="hit" x="{number * step:.1f}" y="0" width="{step:.1f}" height="{_HEIGHT}"/>'
            f"{''.join(drawn)}</a>"
        )
    legend = "".join(
        f'<li><svg class="key" aria-hidden="true"><rect class="kind{position}" width="10" height="10"/></svg>'
        f"{escape(kind.replace('_', ' '))}</li>"
        for position, kind in enumerate(kinds)
    )
    return Markup(
        f'<figure class="chart"><figcaption>{escape(title)}</figcaption>'
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="group" aria-label="{escape(title)}" preserveAspectRatio="none">'
        f'{"".join(parts)}</svg><ul class="legend"><li>highest: {most:,.0f}</li>{legend}</ul></figure>'
    )


def dots(title: str, times: Sequence[tuple[int, float, str]], selected: int) -> Markup:
    """Draw versions on a timeline. `times` are the number, the seconds since 1970 and the link of each version."""
    first, last = min(each[1] for each in times), max(each[1] for each in times)
    length = (last - first) or 1
    drawn = []
    for number, time, href in sorted(times, key=lambda each: each[0] == selected):  # which is on top
        x = 12 + (time - first) * (_WIDTH - 24) / length
        kind = "dot selected" if number == selected else "dot"
        drawn.append(
            f'<a href="{escape(href)}"><title>version {number:,}</title>'
            f'<circle class="{kind}" cx="{x:.1f}" cy="{_BELOW}" r="{7 if number == selected else 5}"/></a>'
        )
    return Markup(
        f'<svg class="line" viewBox="0 0 {_WIDTH} {2 * _BELOW}" role="group" aria-label="{escape(title)}">'
        f'<line class="axis" x1="4" x2="{_WIDTH - 4}" y1="{_BELOW}" y2="{_BELOW}"/>{"".join(drawn)}</svg>'
    )


def flat(text: object) -> Markup:
    """Escape text for titles and SVG, where hidden characters become codes without markup."""
    return escape(HIDDEN_IN_LINE.sub(lambda found: f"[U+{ord(found[0]):04X}]", str(text)))


def causes(nodes: Sequence[Mapping[str, Any]], link: Callable[..., str]) -> Markup:
    """Draw messages and their outputs from left to right.

    A node has `id`, `type`, `status`, `batch`, the ids of its `causes`, and a `level`: 0 for the message itself.
    """
    levels = sorted({node["level"] for node in nodes})
    places: dict[str, tuple[int, int]] = {}
    rows = dict.fromkeys(levels, 0)
    for node in nodes:
        level = node["level"]
        places[node["id"]] = (levels.index(level) * 230 + 4, rows[level] * 56 + 4)
        rows[level] += 1
    width, height = len(levels) * 230 - 30, max(rows.values()) * 56
    drawn = []
    for node in nodes:
        x, y = places[node["id"]]
        for cause in node["causes"]:
            if cause in places:
                from_x, from_y = places[cause][0] + 192, places[cause][1] + 22
                bend = (from_x + x) / 2
                drawn.append(
                    f'<path class="edge" d="M{from_x},{from_y} C{bend},{from_y} {bend},{y + 22} {x},{y + 22}"/>'
                )
    for node in nodes:
        x, y = places[node["id"]]
        kind = "node selected" if node["level"] == 0 else "node"
        id_ = node["id"] if len(node["id"]) <= _SHORT else f"{node['id'][:_SHORT]}…"
        drawn.append(
            f'<a href="{escape(link("message", id=node["id"], batch=node["batch"]))}">'
            f'<rect class="{kind} {escape(node["status"])}" x="{x}" y="{y}" width="192" height="44" rx="6"/>'
            f'<text class="type" x="{x + 10}" y="{y + 18}">{flat(node["type"])}</text>'
            f'<text x="{x + 10}" y="{y + 35}">{flat(id_)}</text></a>'
        )
    return Markup(
        f'<div class="wide" tabindex="0" role="region" aria-label="Graph of causes"><svg class="graph" width="{width}" '
        f'height="{height}" viewBox="0 0 {width} {height}" role="group" aria-label="Causes and outputs">'
        f"{''.join(drawn)}</svg></div>"
    )


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
    """Return the page of a document. `query` are the parameters of the page's URL."""

    def link(page: str, /, **parameters: object) -> str:
        given = {name: str(value) for name, value in parameters.items() if value not in (None, "")}
        return f"{root}/{page}" + (f"?{urlencode(given, errors='replace')}" if given else "")

    def here(**changed: object) -> str:
        return link(more["path"], **{**query, **changed})

    page = _PAGES.get_template(template)
    return page.render(document, link=link, here=here, query=query, **more)
