"""The pages that show what was verified: their generated parts are between marks."""

import re
from pathlib import Path

from tests.model.sources import ROOT

PAGE = ROOT / "docs" / "verification.md"
RESULTS = ROOT / "tests" / "model" / "README.md"


def section(name: str, page: Path = RESULTS) -> str:
    """Return the text between the marks of a name."""
    match = _marked(name).search(page.read_text())
    assert match is not None, f"{page} has no section {name}"
    return match[2].strip()


def rewrite(name: str, text: str, page: Path = RESULTS) -> None:
    """Replace the text between the marks of a name."""
    before = page.read_text()
    page.write_text(_marked(name).sub(lambda match: f"{match[1]}\n{text}\n\n{match[3]}", before))


def _marked(name: str) -> re.Pattern[str]:
    return re.compile(rf"(<!-- {name} -->\n)(.*?)(<!-- end of {name} -->)", re.DOTALL)
