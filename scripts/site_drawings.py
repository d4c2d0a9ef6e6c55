"""The drawings of pages as tables: the site would have to load what draws them from another host, 3 MB of it.

Where the repository is shown, as on GitHub, they are drawn. They are written in Mermaid, of which this reads what they
are made of: boxes, states and arrows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

_DRAWING = re.compile(r"^```mermaid\n(?P<source>.*?)^```$", re.MULTILINE | re.DOTALL)
_BOX = re.compile(r'^ *(?P<name>\w+)\[\(?"(?P<text>.+)"\)?\]$', re.MULTILINE)
_ARROW = re.compile(r"^ *(?P<start>\S+) --[->] (?P<end>[^\s:]+)(?:: (?P<label>.+))?$", re.MULTILINE)
_BEGIN_OR_END = "[*]"


def with_tables(markdown: str) -> str:
    """Turn the drawings of a page into tables."""
    return _DRAWING.sub(lambda found: "\n".join(_table(found["source"])), markdown)


def _table(source: str) -> Iterator[str]:
    boxes = {box["name"]: box["text"] for box in _BOX.finditer(source)}
    arrows = [arrow.group("start", "end", "label") for arrow in _ARROW.finditer(source)]
    if not boxes:
        yield from ("| from | to | by |", "| --- | --- | --- |")
        yield from (_row((_state(start), _state(end), label or "")) for start, end, label in arrows)
        return
    yield from ("| what there is | its arrows lead to |", "| --- | --- |")
    for name, text in boxes.items():
        ends = [boxes[end].partition(":")[0] for start, end, _ in arrows if start == name]
        yield _row((text, ", ".join(ends)))


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _state(name: str) -> str:
    return "" if name == _BEGIN_OR_END else name
