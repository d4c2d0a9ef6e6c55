"""What the generator of the site (mkdocs.yml) does besides rendering docs/.

- README.md, the changelog, the page on the benchmarks and the reference become pages. Links are written for the
  repository, so that they work there; here they become links of the site, and Mermaid drawings become tables.
- A folder in the navigation, such as `decisions/*`, becomes its pages; one that is not there, nothing.
- Pages that explain rank lower in the search than pages that help (`BOOSTS`).
- Each release is built into a folder of its own, `site/VERSION`, beside those built before.
- llms.txt lists the pages for language models, llms-full.txt holds their text.
"""

from __future__ import annotations

import configparser
import json
import re
from pathlib import Path
from posixpath import dirname, join, normpath, relpath
from typing import Any

from scripts.reference.pages import PAGES
from scripts.site_drawings import with_tables

ROOT = Path(__file__).resolve().parent.parent
PLACES = {
    "README.md": "overview.md",
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

BOOSTS = (
    ("how-to/", 2),
    ("reference/errors", 1.2),
    ("reference/outcomes", 1.5),
    ("reference/python", 0.3),
    ("decisions/", 0.1),
    ("compare/", 0.5),
    ("verification", 0.1),
    ("model-checker", 0.1),
    ("kill", 0.1),
    ("faults", 0.1),
    ("tla/", 0.1),
    ("benchmarks", 0.1),
    ("changelog", 0.05),
    ("contributing", 0.1),
)
"""How much pages count in the search, by the beginning of their names; others count 1."""

WORDS = {
    "how-to/daily-batch.md": ["schedule", "cron"],
    "how-to/erase-a-person.md": ["GDPR"],
    "how-to/move-a-table.md": ["migrate"],
    "monitoring.md": ["metrics"],
}
"""Words that readers search for, by the pages that are to come first for them, and for nothing else."""

_LINK = re.compile(r"\[(?P<text>[^\[\]]*)\]\((?!\w+:|#)(?P<link>[^)#\s]+)(?P<rest>[^)]*)\)")
_CODE = re.compile(r"<code>([^<]*)</code>")
_COMMANDS = re.compile(r'<div class="language-sh.*?</pre>', re.DOTALL)
_OPTION = re.compile(r"(?<=\s)--[\w-]+")
_WHOLE = 40  # characters
_COMMENT = re.compile(r"^ *<!-- .*? -->\n", re.MULTILINE)
_REDIRECT = """\
<!doctype html>
<meta charset="utf-8">
<meta http-equiv="refresh" content="0; url={version}/index.html">
<title>consistent-messaging</title>
<a href="{version}/index.html">consistent-messaging {version}</a>
"""


def version() -> str:
    """Return the version of the project."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    return config["metadata"]["version"]


def on_config(config: Any) -> Any:  # noqa: ANN401 - the generator's
    """Expand the navigation, and build into the folder of the release."""
    config.nav = _expanded(config.nav)
    config.extra["release"] = version()
    config.copyright = f"consistent-messaging {version()}"
    if Path(config.site_dir) == ROOT / "site":  # `mkdocs serve` has a folder of its own
        config.site_dir = str(ROOT / "site" / version())
    return config


def pages_of(folder: str) -> list[str]:
    """Return the pages of a folder of the site; README or index is the first."""
    found = [f"{folder}/{page.name}" for page in (ROOT / "docs" / folder).glob("*.md")]
    made = [f"reference/{name}" for name in PAGES if dirname(f"reference/{name}") == folder]
    return sorted(
        found + made,
        key=lambda page: (not page.endswith(("/README.md", "/index.md")), page.removesuffix(".md")),
    )


def _expanded(entries: list[Any]) -> list[Any]:
    pages: list[Any] = []
    for entry in entries:
        if isinstance(entry, str) and entry.endswith("/*"):
            pages += pages_of(entry.removesuffix("/*"))
        elif isinstance(entry, dict):
            pages.append({name: _expanded(of) if isinstance(of, list) else of for name, of in entry.items()})
        else:
            pages.append(entry)
    return pages


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
    boost = next((factor for name, factor in BOOSTS if place.startswith(name)), 1)
    page.meta["search"] = {"boost": boost}
    if place in WORDS:
        page.meta["tags"] = WORDS[place]
    if place == "index.md":
        page.meta["hide"] = ["navigation", "toc"]
    source = next((name for name, there in PLACES.items() if there == place), f"docs/{place}")
    return site_links(with_tables(markdown), source)


def on_page_content(html: str, **_: Any) -> str:  # noqa: ANN401 - the generator's
    """Keep options and words of code whole, unless a phone has no room for them: a browser breaks them at hyphens."""
    html = _COMMANDS.sub(lambda block: _OPTION.sub(r'<span class="option">\g<0></span>', block[0]), html)
    return _CODE.sub(lambda code: f"<code>{' '.join(map(_whole, code[1].split(' ')))}</code>", html)


def _whole(word: str) -> str:
    return f"<span>{word}</span>" if len(word) <= _WHOLE else word


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


def on_nav(nav: Any, **_: Any) -> None:  # noqa: ANN401 - the generator's
    """Remember the order of the pages."""
    on_nav.pages = nav.pages  # type: ignore[attr-defined]


def on_post_build(config: Any) -> None:  # noqa: ANN401 - the generator's
    """Write the pages for language models, and the list of releases."""
    site = Path(config.site_dir)
    pages = [page for page in on_nav.pages if page.markdown]  # type: ignore[attr-defined]
    for page in pages:
        (site / page.file.src_uri).write_text(for_models(page.markdown))
    (site / "llms.txt").write_text(_llms(config, pages))
    (site / "llms-full.txt").write_text(
        "\n\n".join(for_models(page.markdown).strip() for page in pages) + "\n"
    )
    if site.parent == ROOT / "site":
        _list_releases(site)


def for_models(markdown: str) -> str:
    """Return a page without what is there for its tests and its layout."""
    return re.sub(r"^ *</?div.*?>\n|\{ \.md-.*?\}", "", _COMMENT.sub("", markdown), flags=re.MULTILINE)


def _llms(config: Any, pages: list[Any]) -> str:  # noqa: ANN401 - the generator's
    """Return the list of pages, as llmstxt.org has it: a title, a summary, and links by sections."""
    sections: dict[str, list[str]] = {}
    for page in pages:
        section = page.ancestors[-1].title if page.ancestors else "Start"
        sections.setdefault(section, []).append(f"- [{page.title}]({page.file.src_uri})")
    summary = f"# {config.site_name}\n\n> {config.site_description}\n\n[All of it in one file](llms-full.txt)"
    listed = ("\n".join([f"## {name}\n", *links]) for name, links in sections.items())
    return "\n\n".join([summary, *listed]) + "\n"


def _list_releases(site: Path) -> None:
    """Write what the choice of a version in the header reads, and lead from the root to the newest release."""
    releases = sorted(
        (folder.name for folder in site.parent.iterdir() if (folder / "index.html").exists()),
        key=lambda name: [int(part) for part in re.findall(r"\d+", name)],
        reverse=True,
    )
    listed = [
        {"version": name, "title": name, "aliases": ["latest"] if name == releases[0] else []}
        for name in releases
    ]
    (site.parent / "versions.json").write_text(json.dumps(listed))
    (site.parent / "index.html").write_text(_REDIRECT.format(version=releases[0]))
    (site.parent / "404.html").write_text((site.parent / releases[0] / "404.html").read_text())
    for name in ("llms.txt", "llms-full.txt"):
        newest = (site.parent / releases[0] / name).read_text()
        (site.parent / name).write_text(
            newest.replace("](", f"]({releases[0]}/") if name == "llms.txt" else newest
        )
