"""Every path, dotted name, command and option that the documentation mentions exists."""

from __future__ import annotations

import ast
import os
import re
import shlex
from functools import cache
from typing import Any

import pytest
import typer.main

from benchmarks.__main__ import BENCHMARKS
from runtime.cli.application import application
from tests.docs.pages import (
    PACKAGES,
    PAGES,
    ROOT,
    blocks,
    classes,
    exists,
    spans,
    text,
)

_PATH = re.compile(r"[\w.*-]+(/[\w.*-]+)+/?")
_FILE = re.compile(r"([a-z][\w-]*/)*[a-z][\w-]*\.(py|md|svg|tla)")
_DOTTED = re.compile(r"([A-Za-z_]\w*)((?:\.[A-Za-z_]\w*)+)")
_SUFFIXES = ("cfg", "db", "jsonl", "md", "parquet", "py", "svg", "tla", "toml")
_OTHERS = ("Path", "TableServiceClient")
"""Classes of others that pages mention."""

TODAY = [page for page in PAGES if not page.startswith(("CHANGELOG", "docs/decisions/0"))]
"""The pages that tell how things are, not how they became so."""

_SHOWN = re.compile(r"<!-- file: (\S+) -->")
_FOLDERS = {path.name for path in ROOT.iterdir() if path.is_dir()}


def missing(page: str) -> list[str]:
    """Return the paths and files that a page mentions and that are not there, nor shown by it or by the README."""
    shown = set(_SHOWN.findall(text(page) + text("README.md")))
    found = [path for name in (*PACKAGES, "docs", "scripts") for path in (ROOT / name).rglob("*.*")]
    files = [f"/{path.relative_to(ROOT)}" for path in (*found, *ROOT.glob("*.py"))]
    return [
        span
        for span in spans(page)
        if (
            _PATH.fullmatch(span) and span.split("/")[0] in _FOLDERS and not list(ROOT.glob(span.rstrip("/")))
        )
        or (_FILE.fullmatch(span) and span not in shown and not any(f.endswith(f"/{span}") for f in files))
    ]


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


@pytest.mark.parametrize("page", TODAY)
def test_each_path_exists(page):
    assert missing(page) == []


@pytest.mark.parametrize("page", PAGES)
def test_each_dotted_name_exists(page):
    assert unknown(page) == []


def test_what_does_not_exist_is_found(tmp_path):
    page = tmp_path / "page.md"
    paths = [
        "runtime/spark/",
        "port.py",
        "raffle.py",
        "runtime/nowhere.py",
        "nowhere.py",
        "runtime/*/nowhere.py",
    ]
    names = ["runtime.Processor", "Table.scan(None)", "context.now", "os.environ", "eventstore.keys.escape"]
    others = [
        "runtime.nowhere",
        "Nothing.at_all",
        "Table.nowhere",
        "context.then",
        "handlers.testing.nowhere",
    ]
    page.write_text(" ".join(f"`{name}`" for name in [*paths, *names, *others]))
    name = os.path.relpath(page, ROOT)

    assert missing(name) == paths[3:]
    assert unknown(name) == others


@pytest.mark.parametrize("page", PAGES)
def test_what_its_examples_import_is_there(page):
    imported = [name for language, code in blocks(page) if language == "python" for name in _imports(code)]

    assert [name for name in imported if not exists(name)] == []


def _imports(code: str) -> list[str]:
    """Return what an example imports from this project's packages."""
    nodes = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.ImportFrom) and node.module]
    return [
        f"{node.module}.{each.name}"
        for node in nodes
        for each in node.names
        if str(node.module).split(".")[0] in PACKAGES
    ]


@pytest.mark.parametrize("page", PAGES)
def test_each_command_and_its_options_exist(page):
    code = [*spans(page), *(code.replace("\\\n", "") for _, code in blocks(page))]
    lines = [line for each in code for line in each.splitlines() if re.match("consistent [a-z]", line)]

    for line in lines:
        words = shlex.split(line.partition("#")[0].replace("...", ""))[1:]
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
    return {name for option in command.params for name in [*option.opts, *option.secondary_opts]}


@cache
def _whole_command() -> Any:
    return typer.main.get_command(application)


@pytest.mark.parametrize("page", TODAY)
def test_each_target_of_make_and_each_benchmark_exists(page):
    targets = set(re.findall(r"^([a-z-]+):", text("Makefile"), re.MULTILINE))
    code = "\n".join([*spans(page), *(code for _, code in blocks(page))])

    assert set(re.findall(r"^make ([a-z-]+)", code, re.MULTILINE)) <= targets
    assert set(re.findall(r"^python -m benchmarks (\w+)", code, re.MULTILINE)) <= BENCHMARKS.keys()
