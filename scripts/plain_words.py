"""Find paraphrases in the pages of the documentation, and count their words: `python scripts/plain_words.py`.

Fails where a page has a paraphrase, or docs/ has more words than its ceiling.

docs/glossary.md has the terms of the field. Vale would do this, but its package downloads a program when it runs.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

INSTEAD = {
    r"anew|once more": "again",
    r"any more": "no longer",
    r"as far as": "if, where",
    r"as (it|they) (is|are|was|were)": "unchanged",
    r"at one go": "at once",
    r"beside": "next to, with",
    r"comes? again": "is redelivered",
    r"goes? on": "continues",
    r"in place of": "instead of",
    r"lets": "allows",
    r"nobody": "no one, nothing",
    r"none of": "no",
    r"so many": "that many",
    r"stands?": "is",
    r"those that": "the ... that",
    r"told apart": "distinguished",
    r"whoever": "a client, a reader",
}
"""Paraphrases as regular expressions, and what to write."""

MOST_WORDS = 45_000
"""The ceiling of docs/: tokens with a letter or digit, code and tables included."""

_CODE = re.compile(r"^ *```\w*\n.*?^ *```|`[^`\n]+`|\]\([^)]*\)", re.DOTALL | re.MULTILINE)
_WORDS = {re.compile(rf"\b({words})\b", re.IGNORECASE): instead for words, instead in INSTEAD.items()}


def paraphrases(markdown: str) -> Iterator[tuple[int, str, str]]:
    """Yield the paraphrases outside code: the line, the words, and what to write."""
    text = _CODE.sub(lambda code: re.sub(r"[^\n]", " ", code[0]), markdown)
    for number, line in enumerate(text.splitlines(), 1):
        for words, instead in _WORDS.items():
            yield from ((number, found[0], instead) for found in words.finditer(line))


def main() -> None:
    """Print what was found, and exit with 1 where a page has any, or all pages together are too long."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    found = {str(page.relative_to(ROOT)): list(paraphrases(page.read_text())) for page in pages}
    for page, each in found.items():
        for line, paraphrase, instead in each:
            print(f"{page}:{line}: {paraphrase}: write {instead}")
    print(f"paraphrases: {sum(not each for each in found.values())} of {len(found)} pages have none")
    words = sum(len(re.findall(r"\S*\w\S*", page.read_text())) for page in pages[1:])  # without the README
    print(f"words of docs {words:>37,} of {MOST_WORDS:>8,}{'  too many' if words > MOST_WORDS else ''}")
    sys.exit(any(found.values()) or words > MOST_WORDS)


if __name__ == "__main__":
    main()
