"""What the pages link to and name exists, and the site has every page, with links that are those of the site."""

import ast
import importlib
import inspect
import os
import re
import shlex
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer.main

from benchmarks.__main__ import BENCHMARKS
from runtime.cli.application import application
from runtime.messages.outcome import Reason, Status
from scripts.reference import errors_page
from scripts.reference.pages import _MODULES
from scripts.reference.pages import PAGES as REFERENCE
from scripts.site_pages import PLACES, pages_of
from tests.docs.pages import PACKAGES, PAGES, ROOT, anchors, classes, exists, links, spans, text
from tests.docs.pasting import blocks


def target(page: str, link: str) -> Path:
    path = link.partition("#")[0]
    return ((ROOT / page).parent / path).resolve() if path else ROOT / page


@pytest.mark.parametrize("page", PAGES)
def test_its_links_lead_somewhere(page):
    for link in links(page):
        anchor = link.partition("#")[2]
        assert target(page, link).exists(), link
        assert not anchor or anchor in anchors(target(page, link)), link


def test_every_page_is_reached_from_the_readme():
    reached, waiting = set[str](), {"README.md"}
    while waiting:
        page = waiting.pop()
        reached.add(page)
        linked = {str(target(page, link).relative_to(ROOT)) for link in links(page)}
        waiting |= (linked & set(PAGES)) - reached

    assert reached == set(PAGES)


def test_the_decisions_are_listed_by_their_titles():
    listed = re.findall(r"^- \[(\d+)\. (.+)\]\((.+)\)$", text("docs/decisions/README.md"), re.MULTILINE)
    files = sorted(path.name for path in (ROOT / "docs" / "decisions").glob("0*.md"))

    assert [file for _, _, file in listed] == files
    for number, title, file in listed:
        assert text(f"docs/decisions/{file}").startswith(f"# {number}. {title}\n")


_PATH = re.compile(r"[\w.*-]+(/[\w.*-]+)+/?")
_FILE = re.compile(r"([a-z][\w-]*/)*[a-z][\w-]*\.(py|md|svg|tla)")
_DOTTED = re.compile(r"([A-Za-z_]\w*)((?:\.[A-Za-z_]\w*)+)")
_SUFFIXES = ("cfg", "db", "jsonl", "md", "parquet", "py", "svg", "tla", "toml")
_OTHERS = ("Path", "TableServiceClient")
"""Classes of others that pages mention."""

TODAY = [page for page in PAGES if not page.startswith(("CHANGELOG", "docs/decisions/0"))]
"""The pages that tell how things are, not how they became so."""

_SHOWN = re.compile(r"<!-- (?:file:|change: \S+ to) (\S+) -->")
_FOLDERS = {path.name for path in ROOT.iterdir() if path.is_dir()}


def missing(page: str) -> list[str]:
    """Return the paths and files that a page mentions, and that are neither there nor shown by it or by another."""
    shown = set(_SHOWN.findall(text(page) + text("docs/project.md") + text("docs/comparison.md")))
    found = [path for name in (*PACKAGES, "docs", "scripts") for path in (ROOT / name).rglob("*.*")]
    files = [f"/{path.relative_to(ROOT)}" for path in (*found, *ROOT.glob("*.py"))]

    def is_missing(span: str) -> bool:
        if _PATH.fullmatch(span) and span.partition("/")[0] in _FOLDERS:
            return not any(ROOT.glob(span.rstrip("/")))
        is_file = _FILE.fullmatch(span) and span not in shown
        return bool(is_file) and not any(file.endswith(f"/{span}") for file in files)

    return list(filter(is_missing, spans(page)))


def unknown(page: str) -> list[str]:
    """Return the dotted names of this project's that a page mentions and that are not there."""
    return [span for span in spans(page) for found in [_DOTTED.match(span)] if found and not _is_known(found)]


def _is_known(found: re.Match[str]) -> bool:
    """Say whether a dotted name exists, or is none of this project's."""
    first, *_, last = found[0].split(".")
    if last in _SUFFIXES:
        return True
    if first in PACKAGES:
        return exists(found[0])
    owner = {"context": "Context"}.get(first, first)
    if owner not in classes():
        return owner[0].islower() or owner in _OTHERS
    return found[0].split(".")[1] in classes()[owner]


@pytest.mark.parametrize("page", PAGES)
def test_each_path_and_each_dotted_name_exists(page):
    assert missing(page) == [] or page not in TODAY
    assert unknown(page) == [] or page == "CHANGELOG.md"  # which names what was removed


def test_what_does_not_exist_is_found(tmp_path):
    page = tmp_path / "page.md"
    there = ["runtime/spark/", "port.py", "raffle.py", "runtime.Processor", "Table.scan(None)", "context.now",
             "os.environ"]  # fmt: skip
    paths = ["runtime/nowhere.py", "nowhere.py", "runtime/*/nowhere.py"]
    names = ["runtime.nowhere", "Nothing.at_all", "Table.nowhere", "context.then", "handlers.testing.nowhere"]
    page.write_text(" ".join(f"`{name}`" for name in [*there, *paths, *names]))
    name = os.path.relpath(page, ROOT)

    assert (missing(name), unknown(name)) == (paths, names)


@pytest.mark.parametrize("page", PAGES)
def test_what_its_examples_import_is_there(page):
    trees = [ast.parse(block.text) for block in blocks(page) if block.language == "python"]
    nodes = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    ours = [node for node in nodes if str(node.module).split(".")[0] in PACKAGES]

    imported = [f"{node.module}.{each.name}" for node in ours for each in node.names]
    assert [name for name in imported if not exists(name)] == []


@pytest.mark.parametrize("page", PAGES)
def test_each_command_and_its_options_exist(page):
    code = [*spans(page), *(block.text.replace("\\\n", "") for block in blocks(page))]
    lines = [line for each in code for line in each.splitlines() if re.match("consistent [a-z]", line)]

    for line in lines:
        words = shlex.split(line.partition("#")[0].replace("...", ""))[1:]
        if words[0] == "config" and len(words) > 1:  # with the options of another command
            words = words[1:]
        options = {word.partition("=")[0] for word in words if word.startswith("--")}
        assert options <= _options(words) | {"--help", "--version"}, line


def _options(words: list[str]) -> set[str]:
    """Return the options of the command that the words name, which must exist."""
    command = _whole_command()
    for word in words:
        commands = getattr(command, "commands", None)
        if not commands or word.startswith("-"):
            break
        assert word in commands, " ".join(words)
        command = commands[word]
    command = getattr(command, "commands", {}).get("list", command)  # what is meant where no other is named
    return {name for option in command.params for name in [*option.opts, *option.secondary_opts]}


@cache
def _whole_command() -> Any:
    return typer.main.get_command(application)


@pytest.mark.parametrize("page", TODAY)
def test_each_target_of_make_and_each_benchmark_exists(page):
    targets = set(re.findall(r"^([a-z-]+):", text("Makefile"), re.MULTILINE))
    code = "\n".join([*spans(page), *(block.text for block in blocks(page))])

    assert set(re.findall(r"^make ([a-z-]+)", code, re.MULTILINE)) <= targets
    assert set(re.findall(r"^python -m benchmarks (\w+)", code, re.MULTILINE)) <= BENCHMARKS.keys()


GENERATED = {f"reference/{name}" for name in REFERENCE}
"""What is written for the site alone."""


NAVIGATION = text("mkdocs.yml").partition("\nnav:\n")[2].partition("\n\n")[0]


def in_navigation() -> list[str]:
    found = re.findall(r"[\w./-]+(?:\.md|/\*)$", NAVIGATION, re.MULTILINE)
    return [page for each in found for page in ([each] if each.endswith(".md") else pages_of(each[:-2]))]


def test_every_page_is_in_its_navigation_once_and_first_what_a_newcomer_reads():
    places = [PLACES.get(page, page.removeprefix("docs/")) for page in PAGES]

    assert sorted(in_navigation()) == sorted({*places, *GENERATED})
    assert in_navigation()[:3] == ["index.md", "tutorial.md", "installation.md"]
    assert len(re.findall(r"^  - ", NAVIGATION, re.MULTILINE)) <= 7


def test_every_page_of_the_reference_is_written_and_the_help_of_every_command_is_in_it_at_80_columns():
    written = {name: write() for name, write in REFERENCE.items()}

    assert all(each.startswith("# ") for each in written.values())
    assert {"index", "run", "letters-redrive"} <= {Path(name).stem for name in written if "/" in name}
    for page in (written[name] for name in written if name.startswith("commands/")):
        ((name, help_),) = re.findall(
            r"^##? (consistent.*)\n(?s:.*)^```text\n((?s:.*?))\n```$", page, re.MULTILINE
        )
        assert help_.startswith(f"Usage: {name} ")
        assert max(map(len, help_.splitlines())) <= 80


def test_every_reason_and_every_error_has_its_anchor_and_says_what_to_do():
    outcomes, errors = REFERENCE["outcomes.md"](), REFERENCE["errors.md"]()

    for page, names in ((outcomes, [*Status, *Reason]), (errors, errors_page.WHAT_TO_DO)):
        sections = dict(re.findall(r"^### (\w+)\n(.*?)(?=^##|\Z)", page, re.MULTILINE | re.DOTALL))
        assert sections.keys() == {str(name) for name in names}
        assert all("**What to do:** " in section for section in sections.values())
    assert "#### There is no table … in …. {#tablenotfounderror-there-is-no-table-in}" in errors


@pytest.mark.parametrize("module", _MODULES)
def test_every_public_name_is_described(module):
    found = importlib.import_module(module)
    public = [getattr(found, name) for name in getattr(found, "__all__", [])]

    assert found.__doc__
    undescribed = [each for each in public if not inspect.getdoc(each)]
    assert [each for each in undescribed if inspect.isclass(each) or inspect.isfunction(each)] == []
