"""Failures of Spark jobs, in one sentence: what a worker raised, without the traces of two languages around it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_RAISE_ERRORS = ("pyspark", "py4j")
"""The packages whose errors tell of a job: a session of this process raises some of the bridge to its JVM."""

_RAISED = re.compile(
    r"^\S*?((?:runtime|eventstore|handlers)\.[\w.]*Error|[A-Z]\w*(?:Error|Exception)): (.+)$", re.MULTILINE
)
_CALLING = re.compile(r"An error occurred while calling \S+\n: ")
_OURS = ("runtime.", "eventstore.", "handlers.")
_LENGTH = 2000


def is_of_spark(error: BaseException) -> bool:
    """Say whether an error is one that Spark raises, in a session of any kind."""
    return any(each.__module__.partition(".")[0] in _RAISE_ERRORS for each in type(error).__mro__)


@contextmanager
def failing_as(failure: Callable[[str], Exception], what_to_do: str = "") -> Iterator[None]:
    """Raise a failure, made of one sentence and what to do, in place of what Spark raises in the block."""
    try:
        yield
    except Exception as error:
        if not is_of_spark(error):
            raise
        raise failure(explain(error, what_to_do)) from error


@contextmanager
def unless_gone() -> Iterator[None]:
    """End the block, without an error, where a session is no longer there."""
    try:
        yield
    except Exception as error:
        if not (is_of_spark(error) or isinstance(error, OSError)):
            raise


def explain(error: Exception, what_to_do: str = "") -> str:
    """Return what stopped a Spark job, and what to do: the last of our own errors in its text, else its first line."""
    cause = _sentence(_cause(_CALLING.sub("", str(error), count=1)))
    return f"{cause} {what_to_do}".rstrip()


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _cause(text: str) -> str:
    raised: list[tuple[str, str]] = _RAISED.findall(text)
    ours = [sentence for name, sentence in raised if name.startswith(_OURS)]
    if ours:
        return ours[-1][:_LENGTH]
    if raised:
        name, sentence = raised[-1]
        return f"A Spark task failed with {name}: {sentence}"[:_LENGTH]
    first = text.strip().partition("\n")[0]
    return first[:_LENGTH] or "Spark failed without saying why."
