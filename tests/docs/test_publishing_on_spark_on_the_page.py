"""What docs/publishing.md runs on Spark is run as it stands."""

from __future__ import annotations

import ast
import re
import shlex
import sqlite3
from contextlib import closing

import pytest

from tests.docs.pages import text
from tests.plugins.spark import Workplace
from tests.support.done_batches import games, make_batch

pytestmark = pytest.mark.thorough

PAGE = text("docs/publishing.md")
BATCH = "20260301T120000-3f9a1c"


@pytest.fixture
def batch(workplace: Workplace):
    with workplace.at_work():
        make_batch("sqlite:///store.db", workplace.path / "outcomes", games(6, 6), batch_id=BATCH)


@pytest.mark.usefixtures("batch")
def test_its_command_and_its_program_publish_all_outputs(workplace: Workplace, capsys):
    ((name, sender),) = re.findall(r"<!-- file: (\S+) -->\n```python\n(.*?)```", PAGE, re.DOTALL)
    (workplace.path / name).write_text(sender)
    (command,) = re.findall(r"<!-- run: spark -->\n```\nconsistent (.*?)\n```", PAGE, re.DOTALL)
    (program,) = re.findall(r"<!-- run: python on spark -->\n```python\n(.*?)```", PAGE, re.DOTALL)

    done = workplace.consistent(*shlex.split(command))
    with workplace.at_work():
        exec(compile(ast.parse(program), "the page", "exec"), {})

    assert done.returncode == 0, done.stderr
    assert "8 slices, of which 8 were sent now, with 36 outputs" in done.stdout
    assert "Publishing batch" in done.stderr
    assert "36 outputs in 8 slices" in capsys.readouterr().out
    with closing(sqlite3.connect(workplace.path / "from-spark.db")) as file:
        assert file.execute("SELECT count(DISTINCT message_id) FROM Hit").fetchone() == (24,)
