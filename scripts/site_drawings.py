"""The drawing of the layers as a table: the site would have to load what draws it from another host, 3 MB of it.

Where the repository is shown, as on GitHub, it is drawn. Of Mermaid this reads boxes and arrows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_DRAWING = re.compile(r"^```mermaid\n(?P<source>.*?)^```$", re.MULTILINE | re.DOTALL)
_BOX = re.compile(r'^ *(?P<name>\w+)\[\(?"(?P<text>.+)"\)?\]$', re.MULTILINE)
_ARROW = re.compile(r"^ *(?P<start>\w+) --[->] (?P<end>\w+)$", re.MULTILINE)


def with_tables(markdown: str) -> str:
    """Turn the drawings of a page into tables."""
    return _DRAWING.sub(lambda found: "\n".join(_table(found["source"])), markdown)


def _table(source: str) -> Iterator[str]:
    boxes = {box["name"]: box["text"] for box in _BOX.finditer(source)}
    arrows = [arrow.group("start", "end") for arrow in _ARROW.finditer(source)]
    yield from ("| what there is | its arrows lead to |", "| --- | --- |")
    for name, text in boxes.items():
        ends = ", ".join(boxes[end].partition(":")[0] for start, end in arrows if start == name)
        yield f"| {text} | {ends} |"
