"""The page on what is read and written as columns: message logs and outcomes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from posixpath import basename, dirname, join, relpath

from pyspark.sql.types import StructType

from runtime.messages.outcome import Reason, Status
from runtime.spark.worker.outcomes import OUTCOME, OUTPUT
from scripts.reference.errors_page import headed, sentences
from scripts.reference.markdown import code, page, table

DOCS = Path(__file__).resolve().parents[2] / "docs"

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

_STATUSES = """\
## Statuses

Each delivery has one of four statuses for each handler that it goes to.
"""
_REASONS = """\
## Reasons

A dead letter has one of these reasons, and in the column `error` a sentence. The sentences are below the reasons where
they do not depend on a handler.
"""

WHAT_TO_DO: dict[StrEnum, str] = {
    Status.PROCESSED: "Nothing.",
    Status.DUPLICATE: "Nothing. Consumers of its outputs deduplicate by id or by `made_by`.",
    Status.TOO_LATE: "Truncate with a longer `--older-than`. If it is new, run its line with `--late process`.",
    Status.DEAD_LETTER: "Look at its reason; correct the message or the handler, and redrive it.",
    Reason.INVALID_ENVELOPE: "Correct the line, and run it as a log.",
    Reason.UNKNOWN_TYPE: "Add a handler for the type or an alias for its old name, and redrive; or discard it.",
    Reason.TYPE_NOT_ALLOWED: "Redrive it if the type may come from this log.",
    Reason.UNKNOWN_HANDLER: "Correct `handler` in the log, or run the app that has the handler.",
    Reason.INVALID_BODY: "Redrive it with a corrected body (`--edit`), or after the type accepts this one.",
    Reason.NO_BUSINESS_ID: "Redrive it with a body that has the field.",
    Reason.BUSINESS_ID_MISMATCH: "Correct the column `business_id`, or leave it out.",
    Reason.KEY_TOO_LONG: "Use a shorter business id, such as a hash of it.",
    Reason.HANDLER_ERROR: "Correct the handler, and redrive it.",
    Reason.HANDLER_TIMEOUT: "Make the handler faster or raise `--handler-timeout`, and redrive it.",
    Reason.HANDLER_CRASHED: "Correct the handler or the library that ends the process, and redrive it.",
    Reason.ID_REUSED: "Send the message under an id of its own, and discard this letter.",
    Reason.NONDETERMINISTIC: "Correct the handler, or keep the old code as a revision.",
    Reason.REPLAY_FAILED: "Restore the revision or the upcaster that the version needs.",
    Reason.ENQUEUED_IN_FUTURE: "Correct the clock of the sender, and redrive it later.",
    Reason.TOO_LARGE: "Raise the limit that the sentence names and run the message again, or split it.",
    Reason.STATE_TOO_LARGE: "Keep less in the state, or split the object into several.",
    Reason.HELD_BACK: "Redrive or discard the letter before it; then redrive this one.",
    Reason.FORGOTTEN: "Nothing: the object was erased. `consistent forget --restart` would start a new history.",
    Reason.STREAM_DAMAGED: "Run `consistent check`, restore the rows from an export, and run the line again.",
}

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
    "made_by": "of a duplicate: the id of the batch that made the version; none if a consumer made it",
    "made_by_number": "the number of that batch, because an id may be reused after pruning",
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
        "Outcomes, statuses and reasons",
        _INTRODUCTION,
        _OUTCOMES,
        table(heads, _rows(OUTCOME, _OF_OUTCOMES)),
        _OUTPUTS,
        table(heads, _rows(OUTPUT, _OF_OUTPUTS)),
        _STATUSES,
        *_sections(Status),
        _REASONS,
        *_sections(Reason),
    )


def _sections(values: type[StrEnum]) -> Iterator[str]:
    for value in values:
        lines = [f"### {value}", _meaning(value), f"**What to do:** {WHAT_TO_DO[value]}"]
        said = sentences().get(value.name, ()) if isinstance(value, Reason) else ()
        yield "\n\n".join([*lines, *headed(str(value), said)])


def _meaning(value: StrEnum) -> str:
    """Return what the documentation says of a status or a reason: the cell behind it in a table of two columns."""
    for file in sorted(DOCS.rglob("*.md")):
        if found := re.search(rf"^\| `{value}` \| (.*) \|$", file.read_text(), re.MULTILINE):
            return _linked(found[1], file.relative_to(DOCS).as_posix())
    message = f"No page of docs/ has a table with {value}."
    raise LookupError(message)


def _linked(text: str, source: str) -> str:
    """Return Markdown of a page, such that its links lead to the same places from a page in reference/."""
    text = text.replace("](#", f"]({basename(source)}#")
    return re.sub(
        r"\]\((?!\w+:)([^)]+)", lambda link: "](" + relpath(join(dirname(source), link[1]), "reference"), text
    )


def _rows(schema: StructType, meanings: dict[str, str]) -> list[list[str]]:
    return [
        [code(each.name), _kind(each.dataType.simpleString()), meanings[each.name]] for each in schema.fields
    ]


def _kind(text: str) -> str:
    return "list of [outputs](#outputs)" if text.startswith("array<struct") else text
