"""The page on what is read and written as columns: message logs and outcomes."""

from __future__ import annotations

from pyspark.sql.types import StructType

from runtime.spark.worker.outcomes import OUTCOME, OUTPUT
from scripts.reference.markdown import code, page, table

_INTRODUCTION = """\
For readers of outcomes. [Outcomes](../outcomes.md) explains the files, [Message logs](../message-logs.md#columns) the
columns of a log, and [Statuses and reasons](../statuses.md) their values.
"""
_OUTCOMES = """\
## Outcomes

One row for each delivery and handler. Readers of the whole folder also get `batch_id` and `round` from the names of
folders.
"""
_OUTPUTS = """\
## Outputs

Each item of `outputs`; `runtime.spark.outputs` gives them as rows, which are a message log.
"""

_OF_OUTCOMES = {
    "message_id": "the delivery's; none when the line of the log is no envelope",
    "type": "the delivery's",
    "handler": "the handler that it went to; none when no handler takes it",
    "business_id": "the business object, as text; none when it could not be told",
    "status": "`processed`, `duplicate`, `too_late` or `dead_letter`",
    "reason": "why it is a dead letter",
    "error": "the same as a sentence, with what is wrong in this delivery",
    "version": "the version of the stream that the message made, from 1",
    "outputs": "what it published: only at the first delivery of the message in the batch",
    "delivery": "of a dead letter and of what is too late: the delivery as it was, as a line of a log in JSON",
}
_OF_OUTPUTS = {
    "message_id": "derived from the message that was handled: the same in every replay",
    "type": "the name of the message type",
    "body": "JSON",
    "sequence": "the version of the parent shifted by 20 bits, plus the output's index",
    "enqueued_at": "when the parent was first handled",
    "headers": "as they were published",
}


def write() -> str:
    """Return the page."""
    heads = ["column", "type", ""]
    return page(
        "Outcomes",
        _INTRODUCTION,
        _OUTCOMES,
        table(heads, _rows(OUTCOME, _OF_OUTCOMES)),
        _OUTPUTS,
        table(heads, _rows(OUTPUT, _OF_OUTPUTS)),
    )


def _rows(schema: StructType, meanings: dict[str, str]) -> list[list[str]]:
    return [
        [code(each.name), _kind(each.dataType.simpleString()), meanings[each.name]] for each in schema.fields
    ]


def _kind(text: str) -> str:
    return "list of [outputs](#outputs)" if text.startswith("array<struct") else text
