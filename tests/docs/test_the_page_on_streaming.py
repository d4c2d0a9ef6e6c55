"""The sentences that docs/streaming.md quotes are those of the code."""

from __future__ import annotations

import re
from pathlib import Path

from tests.docs.pages import text

PAGE = text("docs/streaming.md")


def test_the_sentences_of_refusals_are_those_of_the_code():
    code = "".join(path.read_text() for path in Path("runtime/spark/streaming").glob("*.py"))
    code = re.sub(r'"\s*\n\s*f?"', "", code)
    quoted = [
        part
        for cell in re.findall(r"^\| the? .*?\| (.*) \|$|^\| it .*?\| (.*) \|$", PAGE, re.MULTILINE)
        for part in re.findall(r"`([^`]+)`", "".join(cell))
    ]
    for sentence in (*quoted, "`is that of the query ...`".strip("`")):
        for words in re.split(r"0|shots|games|\.\.\.", sentence):
            assert words.strip() in code, sentence
