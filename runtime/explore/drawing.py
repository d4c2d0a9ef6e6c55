"""Small charts and graphs as SVG, without scripts and inline styles. Each has a text alternative."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from markupsafe import Markup, escape

from runtime.versions.readable import HIDDEN_IN_LINE

_WIDTH, _HEIGHT, _BELOW = 640, 120, 16
_SHORT, _FEWEST = 24, 12


def bars(title: str, rows: Sequence[tuple[str, str, Mapping[str, float]]], kinds: Sequence[str]) -> Markup:
    """Draw stacked bars, one a row of label, link and values by kind. Bars of one value may have any height."""
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
    """Draw versions on a line of time: number, seconds since 1970, and link of each."""
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
