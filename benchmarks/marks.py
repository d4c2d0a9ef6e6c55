"""Parts of a document that commands write anew, each between `<!-- NAME -->` and `<!-- end of NAME -->`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path


def marks(name: str) -> tuple[str, str]:
    """Return the lines between which a part stands."""
    return f"<!-- {name} -->", f"<!-- end of {name} -->"


def check_marks(document: Path, names: Iterable[str]) -> None:
    """Raise `ValueError` when a document lacks the marks of a part."""
    text = document.read_text()
    for name in names:
        _split(document, text, name)


def put_parts(document: Path, parts: Mapping[str, str]) -> None:
    """Replace parts of a document, given by name, all or none. Raises `ValueError` when it lacks their marks."""
    text = document.read_text()
    for name, part in parts.items():
        before, after = _split(document, text, name)
        text = f"{before}{part}{after}"
    document.write_text(text)


def _split(document: Path, text: str, name: str) -> tuple[str, str]:
    """Return what stands before and after a part, with its marks."""
    begin, end = marks(name)
    before, found_begin, rest = text.partition(f"{begin}\n")
    _, found_end, after = rest.partition(end)
    if not (found_begin and found_end):
        message = f"{document} lacks the lines {begin} and {end}, between which the table is put."
        raise ValueError(message)
    return before + found_begin, found_end + after
