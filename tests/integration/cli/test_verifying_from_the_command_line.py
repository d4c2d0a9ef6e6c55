"""`consistent verify` as it is used before changed handlers are deployed: exit code, report, and nothing written."""

from dataclasses import dataclass
from subprocess import CompletedProcess

import pytest

from tests.integration.cli.folder import APP, Folder
from tests.plugins.spark import Workplace
from tests.unit.cli.shapes import document_of

ON_STORE = ["--store", "sqlite:///verified.db", "--table", "bank", "--master", "local[2]"]
RUN = ["run", "--app", "bank:app", *ON_STORE, "--messages", "log.jsonl", "--out", "outcomes", "--cascade"]
VERIFY = ["verify", *ON_STORE, "--messages", "log.jsonl"]

pytestmark = pytest.mark.thorough


@dataclass(frozen=True)
class Commands:
    """What each command gave, and the files of the folder before and after."""

    same: CompletedProcess[str]
    changed: CompletedProcess[str]
    machine: CompletedProcess[str]
    files_before: list[str]
    files_after: list[str]


@pytest.fixture(scope="module")
def commands(workplace: Workplace) -> Commands:
    folder = workplace
    Folder.make(workplace.path)
    (folder.path / "changed.py").write_text(APP.replace("state.total + message.amount", "state.total + 2"))
    assert folder.consistent(*RUN).returncode == 0

    def files() -> list[str]:
        found = (path.relative_to(folder.path) for path in folder.path.rglob("*") if path.suffix != ".pyc")
        return sorted(str(path) for path in found if "__pycache__" not in path.parts)

    before = files()
    return Commands(
        same=folder.consistent(*VERIFY, "--app", "bank:app", "--cascade"),
        changed=folder.consistent(*VERIFY, "--app", "changed:app", "--limit", "2"),
        machine=folder.consistent(*VERIFY, "--app", "changed:app", "--json"),
        files_before=before,
        files_after=files(),
    )


def test_the_same_handlers_are_done_with_exit_code_0(commands):
    assert commands.same.returncode == 0, commands.same.stderr
    assert "No stored version differs: 19 of 22 deliveries match." in commands.same.stdout
    assert "No handler takes messages of type Withdrawn." in commands.same.stdout


def test_its_progress_goes_to_standard_error(commands):
    assert "Round 0: handling messages again" in commands.same.stderr
    assert "Round 1: handling messages again" in commands.same.stderr


def test_changed_handlers_fail_with_exit_code_1_and_examples(commands):
    said = commands.changed.stdout

    assert commands.changed.returncode == 1
    assert "of 13 deliveries differ" in said
    assert "A changed rule needs a new revision" in said
    assert "(2 of 3)" in said
    assert "nondeterministic: The replay of version 1 has" in said
    assert "Traceback" not in commands.changed.stderr


def test_machines_get_one_document(commands):
    document = document_of(commands.machine.stdout, "verify")

    assert commands.machine.returncode == 1
    assert document["is_clean"] is False
    assert document["matches"] + document["different"] + 3 == document["deliveries"] == 13
    assert {each["business_id"] for each in document["differences"]} == {"a0", "a1", "a2"}
    first = next(each for each in document["differences"] if each["business_id"] == "a0")
    assert first["changes"] == [{"field": "total", "before": 3, "after": 2}]
    assert first["verdict"] == "nondeterministic"


def test_nothing_is_made(commands):
    assert commands.files_before == commands.files_after
