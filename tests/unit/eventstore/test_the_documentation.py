import re
import subprocess
import sys
from pathlib import Path

import pytest

from eventstore import ExpectedVersion, Stream
from eventstore.limits import MAX_OPERATIONS, MAX_PROPERTIES
from eventstore.port import PAGE_SIZE

PAGES = Path(__file__).parents[3] / "docs"
DOCUMENT = (PAGES / "event-store.md").read_text()

EXAMPLES = re.findall(r"```python\n(.*?)```", DOCUMENT, re.DOTALL)
PRINTED = [
    "someone else was first: read again, decide again\n",
    "1 Ada\n",
]


@pytest.mark.parametrize(("example", "printed"), list(zip(EXAMPLES, PRINTED, strict=True)))
def test_an_example_runs(tmp_path, example, printed):
    done = subprocess.run(
        [sys.executable, "-c", example],
        cwd=tmp_path,
        env={"PYTHONPATH": str(Path(__file__).parents[3])},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.stdout, done.stderr) == (printed, "")


def test_every_verb_and_every_error_of_a_stream_is_in_it():
    verbs = [name for name, value in vars(Stream).items() if isinstance(value, classmethod)]

    assert [verb for verb in verbs if f"`Stream.{verb}(" not in DOCUMENT and f"`{verb}" not in DOCUMENT] == []
    for expected in ExpectedVersion:
        assert f"`ExpectedVersion.{expected.name}`" in DOCUMENT


def test_the_limits_are_those_of_the_code():
    assert f"{MAX_OPERATIONS} operations" in DOCUMENT
    assert f"{MAX_PROPERTIES} properties" in DOCUMENT
    assert f"{PAGE_SIZE:,} rows" in DOCUMENT
