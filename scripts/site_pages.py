"""What the generator of the site (mkdocs.yml) is told about pages that are not in docs/.

README.md is the site's first page, and the changelog and the page on the benchmarks are pages too. Links are written
for the repository, so that they work there; here they are made those of the site, and drawings are made tables. The
reference is made for the site alone.
"""

from __future__ import annotations

import re
from pathlib import Path
from posixpath import dirname, join, normpath, relpath
from typing import Any

from scripts.reference.pages import PAGES
from scripts.site_drawings import with_tables

ROOT = Path(__file__).resolve().parent.parent
PLACES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "benchmarks/README.md": "benchmarks.md",
    "scripts/reference/json.md": "reference/json.md",
    "tests/faults/README.md": "kills.md",
    "tests/model/README.md": "model-checker.md",
    "tests/publishing/README.md": "killed-publishers.md",
}
"""The pages outside docs/, and where they are in the site."""

_LINK = re.compile(r"\[(?P<text>[^\[\]]*)\]\((?!\w+:|#)(?P<link>[^)#\s]+)(?P<rest>[^)]*)\)")


def on_files(files: Any, config: Any) -> Any:  # noqa: ANN401 - the generator's
    """Add the pages that are not in docs/."""
    from mkdocs.structure.files import File  # noqa: PLC0415 - only the generator has it

    pages = {place: (ROOT / source).read_text() for source, place in PLACES.items()}
    pages |= {f"reference/{name}": write() for name, write in PAGES.items()}
    for place, content in pages.items():
        files.append(File.generated(config, place, content=content))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:  # noqa: ANN401 - the generator's
    """Turn the links of a page into those of the site, and its drawings into tables."""
    place = page.file.src_uri
    source = next((name for name, there in PLACES.items() if there == place), f"docs/{place}")
    return site_links(with_tables(markdown), source)


def site_links(markdown: str, source: str) -> str:
    """Turn the links of a page of the repository into those of the site; of links to its code the text stays."""
    return _LINK.sub(lambda found: _site_link(found, source), markdown)


def _site_link(found: re.Match[str], source: str) -> str:
    target = normpath(join(dirname(source), found["link"]))
    place = _place(target)
    if place is None:
        return found["text"] if (ROOT / target).exists() else found[0]
    there = relpath(place, dirname(_place(source) or "") or ".")
    return f"[{found['text']}]({there}{found['rest']})"


def _place(path: str) -> str | None:
    """Return where a file of the repository is in the site, None when it is not there."""
    return path.removeprefix("docs/") if path.startswith("docs/") else PLACES.get(path)
