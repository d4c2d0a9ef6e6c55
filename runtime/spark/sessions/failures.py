"""Failures of Spark jobs, in one sentence: what a worker raised, without the traces of two languages around it."""

from __future__ import annotations

import re

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException

SPARK_FAILURES = (PySparkException, Py4JError)

_RAISED = re.compile(
    r"^\S*?((?:runtime|eventstore|handlers)\.[\w.]*Error|[A-Z]\w*(?:Error|Exception)): (.+)$", re.MULTILINE
)
_OURS = ("runtime.", "eventstore.", "handlers.")
_LENGTH = 2000


def explain(error: Exception, batch_id: str | None = None) -> str:
    """Return what stopped a Spark job: the last of our own errors in its text, else the first line of it."""
    resume = f" Nothing is lost: run batch {batch_id} again with its id." if batch_id else ""
    return f"{_sentence(_cause(_text(error)))}{resume}"


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _text(error: Exception) -> str:
    if isinstance(error, Py4JJavaError):
        return str(error.java_exception.toString())
    return str(error)


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
