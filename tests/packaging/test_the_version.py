"""The version stands in setup.cfg; what else names it agrees."""

import re
from pathlib import Path

import pytest

from runtime.cli import main
from tests.packaging.extras import setup_cfg

ROOT = Path(__file__).parents[2]
VERSION = setup_cfg()["metadata"]["version"]


def test_the_command_line_prints_it(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--version"])

    assert ended.value.code == 0
    assert capsys.readouterr().out == f"consistent-messaging {VERSION}\n"


def test_the_newest_section_of_the_changelog_but_for_what_is_unreleased_is_its_own():
    sections = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)

    newest = next(section for section in sections if section != "[Unreleased]")
    assert re.fullmatch(rf"{re.escape(VERSION)} - \d{{4}}-\d\d-\d\d", newest)


def test_the_hook_that_the_documents_show_has_its_tag():
    page = (ROOT / "docs" / "determinism.md").read_text()

    assert re.findall(r"rev: (\S+)", page) == [f"v{VERSION}"]
