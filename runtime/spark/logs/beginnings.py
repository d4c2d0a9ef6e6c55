"""What the first bytes of a log's file say: whether it is of the format that it is to be read as.

A line that is no message is a dead letter, and costs the others nothing. A file in another format would be one dead
letter for each of its lines, so it is refused, with a sentence that says what to do.
"""

from __future__ import annotations

import json
import re
import shlex
from typing import NamedTuple

from runtime.errors import LogError

BEGINNING = 65_536
"""How many bytes are looked at."""

_PARQUET = (b"PAR1", b"PARE")
_KINDS = {
    b"\x1f\x8b": "compressed by gzip: give it a name that ends in .gz",
    b"BZh": "compressed by bzip2: give it a name that ends in .bz2",
    b"\x28\xb5\x2f\xfd": "compressed by zstd: give it a name that ends in .zst",
    b"PK\x03\x04": "a zip archive, or a workbook of Excel: write its rows as JSON lines",
    b"\xff\xfe": "UTF-16: write it as UTF-8",
    b"\xfe\xff": "UTF-16: write it as UTF-8",
}
_ARRAY = re.compile(r"\[\s*\{")
_INDENTED = re.compile(r'\{[ \t]*\r?\n\s*"')
_IS_MESSAGE = "message_id"
_ITEMS, _OBJECT = "'.[]'", "."
"""What jq is to make a line each of."""


class Beginning(NamedTuple):
    """The first bytes of a file, as its name says that they are to be unpacked, and whether they are all of it."""

    data: bytes
    is_whole: bool

    @property
    def is_empty(self) -> bool:
        """Whether the file has nothing but blanks."""
        return self.is_whole and not self.data.strip()


def check_beginning(path: str, format_: str, beginning: Beginning) -> None:
    """Raise `LogError` when a file begins as no file of the format does."""
    if format_ == "json":
        _check_lines(path, beginning)
    elif not beginning.data.startswith(_PARQUET):
        _check_parquet(path, beginning)


def _check_lines(path: str, beginning: Beginning) -> None:
    name = _name(path)
    if beginning.data.startswith(_PARQUET):
        raise LogError(f"{name} is Parquet: leave out --format, or say --format parquet.")
    for magic, kind in _KINDS.items():
        if beginning.data.startswith(magic):
            raise LogError(f"{name} is {kind}.")
    text = beginning.data.decode("utf-8-sig", "replace").strip()
    if _ARRAY.match(text) and _is_one_value(text, beginning):
        raise LogError(
            f"{name} is one JSON array, and a log has one object on each line: {_write_anew(path, _ITEMS)}"
        )
    if _INDENTED.match(text) and _is_one_value(text, beginning):
        raise LogError(
            f"{name} has objects of several lines, and a log has one on each line: {_write_anew(path, _OBJECT)}"
        )


def _write_anew(path: str, what: str) -> str:
    """Return the sentence with the command that makes lines of a file."""
    quoted = shlex.quote(path)
    given = f"gunzip -c {quoted} | jq -c {what}" if path.endswith(".gz") else f"jq -c {what} {quoted}"
    return f"write it anew, for example with {given} > lines.jsonl"


def _check_parquet(path: str, beginning: Beginning) -> None:
    name = _name(path)
    if not beginning.data:
        raise LogError(f"{name} is empty, and so no Parquet.")
    is_text = beginning.data.lstrip()[:1] in (b"{", b"[")
    hint = "If it holds JSON lines, as it seems, say" if is_text else "If it holds JSON lines, say"
    raise LogError(f"{name} is no Parquet. {hint} --format json.")


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _is_one_value(text: str, beginning: Beginning) -> bool:
    """Say whether lines belong together: what is a message by itself, beside lines that are none, is a log."""
    return (beginning.is_whole and _parsed(text) is not None) or not any(map(_is_message, text.splitlines()))


def _is_message(line: str) -> bool:
    parsed = _parsed(line)
    return isinstance(parsed, dict) and _IS_MESSAGE in parsed


def _parsed(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
