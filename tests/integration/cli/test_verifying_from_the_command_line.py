"""`consistent verify` as it is used before changed handlers are deployed: exit code, report and document."""

import pytest

from tests.integration.cli.folder import APP, Folder
from tests.plugins.spark import Workplace
from tests.unit.cli.shapes import document_of

ON_STORE = ["--store", "sqlite:///verified.db", "--table", "bank", "--master", "local[2]"]
RUN = ["run", "--app", "bank:app", *ON_STORE, "--messages", "log.jsonl", "--out", "outcomes", "--cascade"]
VERIFY = ["verify", *ON_STORE, "--messages", "log.jsonl"]


@pytest.mark.thorough
def test_changed_handlers_fail_with_exit_code_1_and_examples_and_the_same_do_not(workplace: Workplace):
    folder = Folder.make(workplace.path)
    (folder.path / "changed.py").write_text(APP.replace("state.total + message.amount", "state.total + 2"))
    assert workplace.consistent(*RUN).returncode == 0

    same = workplace.consistent(*VERIFY, "--app", "bank:app", "--cascade")
    changed = workplace.consistent(*VERIFY, "--app", "changed:app", "--limit", "2")
    machine = workplace.consistent(*VERIFY, "--app", "changed:app", "--json")

    assert (same.returncode, "Round 1: handling messages again" in same.stderr) == (0, True), same.stderr
    assert "No stored version differs: 19 of 22 deliveries match." in same.stdout
    assert (changed.returncode, "(2 of 3)" in changed.stdout) == (1, True)
    assert "A changed rule needs a new revision" in changed.stdout
    assert "nondeterministic: The replay of version 1 has" in changed.stdout
    document = document_of(machine.stdout, "verify")
    assert (machine.returncode, document["is_clean"]) == (1, False)
    assert document["matches"] + document["different"] + 3 == document["deliveries"] == 13
    first = next(each for each in document["differences"] if each["business_id"] == "a0")
    assert first["changes"] == [{"field": "total", "before": 3, "after": 2}]
