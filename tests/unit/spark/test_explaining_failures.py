"""What stopped a Spark job is told in one sentence, without the traces around it."""

import pytest

from runtime.spark.session import explain

TRACE = """An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "fold.py", line 1, in handle
    raise ReplayFailedError(problem)
{raised}

SQLSTATE: 38000"""


@pytest.mark.parametrize(
    ("raised", "told"),
    [
        ("runtime.errors.ReplayFailedError: Message a cannot be replayed.", "Message a cannot be replayed."),
        ("eventstore.errors.StoreUnavailableError: It did not answer", "It did not answer."),
        ("KeyError: 'x'", "A Spark task failed with KeyError: 'x'."),
    ],
)
def test_the_last_error_counts(raised, told):
    assert explain(Exception(TRACE.format(raised=raised))) == told


def test_it_says_how_to_go_on():
    told = explain(Exception("no trace at all"), "Nothing is lost.")
    assert told == "no trace at all. Nothing is lost."
