"""The page on errors: each class with its meaning, what to do, and the sentences that the code says with it."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import eventstore.errors
import handlers.errors
import runtime.errors
from eventstore.errors import EventStoreError
from runtime.cli.failures import exit_code
from scripts.reference.markdown import page

ROOT = Path(__file__).resolve().parents[2]
_MODULES = (runtime.errors, handlers.errors, eventstore.errors)
_ANCHOR = 6  # words
_SHORTEST = 12
"""Shorter texts in a call are names and places, not sentences."""

_ESCAPED = str.maketrans({sign: f"&#{ord(sign)};" for sign in "\\*_[]<>{}#|"})

_INTRODUCTION = """\
For readers of an error. Each class has its meaning, what to do, the exit code of a command that it ends, and the
sentences that it may carry; `…` stands for a name or a number. A rejected delivery raises nothing: it has a
[reason](outcomes.md#reasons).
"""

WHAT_TO_DO = {
    # runtime
    "RuntimeFailure": "Catch it to catch all errors of this package.",
    "UsageError": "Change the option, name or url that the sentence names.",
    "LogError": "Correct the path, or the file that the sentence names.",
    "AppNotFoundError": "Check the `module:attribute` of `--app`, and that the module is in the working directory.",
    "BatchRefusedError": "Use another batch id, or the log and options of the first run.",
    "OutcomesMissingError": "Restore the files, or run the batch again with its id.",
    "LeaseHeldError": "Wait until the other process ends, or until the time that the sentence names.",
    "RetriesExhaustedError": "Run it again: nothing is lost. If this is frequent, use fewer writers.",
    "ReplayFailedError": "Run it with the handlers that made the version, or abandon the batch that made it.",
    "LeaseLostError": "Run the command again; it continues.",
    "DifferenceError": "Correct the handler, and run the batch again with its id.",
    "StoredDataError": "Run `consistent check`; upgrade if newer code wrote the row; else restore it from an export.",
    "ArchiveError": "Restore the file that the sentence names, or export again.",
    "TargetError": "Correct what the target refuses, and run `consistent publish` again; it resumes.",
    "TargetUnavailableError": "Run `consistent publish` again once the target answers.",
    "SendError": "Raise one of its subclasses from a sender.",
    "TransientError": "Raise it from a sender when another attempt may succeed.",
    "PermanentError": "Raise it from a sender when no attempt can succeed.",
    "SchemasUnavailableError": "Nothing is lost. Start the schema registry, or correct its url, and run the batch or "
    "stream again.",
    "MissingExtraError": "Install the extra that the sentence names.",
    "BatchFailedError": "Remove the cause, and run the batch again with its id.",
    "BatchHeldBackError": "Run the batch again with its id and a higher `--max-dead-letters`.",
    # handlers
    "HandlersError": "Catch it to catch all errors of this package.",
    "AppError": "Correct the declarations that the sentences name.",
    "CodecError": "Use types of fields that [states and messages](handlers.md#types-of-fields) may have.",
    "CaptureError": "Capture each name once, and only [what can be recorded](handlers.md#what-can-be-captured).",
    "DocumentError": "Store bytes of up to the limit, under a valid name and media type.",
    "InputStateChangedError": "Return a new state, such as `state.model_copy(update=...)`.",
    "NondeterminismError": "Use `context.now`, `context.random`, `context.new_guid()` or `context.capture(...)`.",
    "PublishError": "Publish instances of `Message`, with headers of text.",
    "OutputsTooLargeError": "Publish fewer or smaller messages for one message.",
    "SpecError": "Correct the specification: its handler could never meet this case.",
    # eventstore
    "EventStoreError": "Catch it to catch all errors of this package.",
    "StoreUrlError": "Correct the url, or the credentials behind it.",
    "TableNotFoundError": "Check `--store` and `--table`. `consistent run` creates tables, other commands do not.",
    "StoreUnavailableError": "Try again. When `outcome_unknown` is true, read before you write again.",
    "TableNameError": "Choose a name of letters and digits.",
    "InvalidKeyError": "Choose another key.",
    "PayloadTooLargeError": "Write less at once, or smaller values.",
    "StreamNotFoundError": "Check the partition, or write the first event.",
    "StreamDeletedError": "Use another partition: a deleted stream is never written again.",
    "StreamTruncatedError": "Read from a later version on.",
    "ConcurrencyConflictError": "Read the stream again, decide again, and write.",
    "DuplicateEventError": "The event is stored already: usually this means that the work is done.",
    "IncludeConflictError": "Read the row again, decide again, and write.",
    "DamagedRowError": "Restore the row from an export.",
    "RowError": "Read the row again, decide again, and write.",
    "RowExistsError": "Read the row: another writer was first.",
    "RowNotFoundError": "Read the partition: the row was deleted.",
    "RowChangedError": "Read the row again, decide again, and write.",
}


def write() -> str:
    """Return the page."""
    return page("Errors", _INTRODUCTION, *(section for module in _MODULES for section in _sections(module)))


def classes(module: object) -> Iterator[type[Exception]]:
    """Yield the public errors that a module defines."""
    for name, kind in vars(module).items():
        is_error = inspect.isclass(kind) and issubclass(kind, Exception)
        if is_error and kind.__module__ == module.__name__ and not name.startswith("_"):  # type: ignore[attr-defined]
            yield kind


def _sections(module: object) -> Iterator[str]:
    yield f"## {module.__name__.partition('.')[0]}"  # type: ignore[attr-defined]
    for kind in classes(module):
        above = next(base.__name__ for base in kind.__bases__ if not base.__name__.startswith("_"))
        meaning = " ".join((inspect.getdoc(kind) or "").partition("\n\n")[0].split())
        lines = [
            f"### {kind.__name__}",
            f"{meaning} *Base:* `{above}`. *A command ends with:* {exit_code(kind.__new__(kind))}.",
            f"**What to do:** {WHAT_TO_DO[kind.__name__]}",
        ]
        yield "\n\n".join(
            [*lines, *headed(kind.__name__, {*sentences().get(kind.__name__, ()), *_text(kind)})]
        )


def headed(name: str, said: Iterable[str]) -> Iterator[str]:
    """Yield sentences as headings with anchors, such as #targeterror-redis-refused, so that the search ranks them."""
    anchors: list[str] = []
    for sentence in sorted(said):
        words = re.findall(r"[a-z0-9]+", f"{name} {sentence}".lower())
        anchor = "-".join(words[:_ANCHOR])
        anchors.append(anchor)
        number = f"-{anchors.count(anchor)}" * (anchors.count(anchor) > 1)
        yield f"#### {sentence} {{#{anchor}{number}}}"


def _text(kind: type[Exception]) -> list[str]:
    text = kind.text if issubclass(kind, EventStoreError) else ""
    return [_escaped(text)] if text not in {"", "{self.message}"} else []


@cache
def sentences() -> dict[str, set[str]]:
    """Return the sentences in calls of an error, or with a reason, by the name of the class or of the reason."""
    found: dict[str, set[str]] = {}
    for package in ("eventstore", "handlers", "runtime"):
        for file in sorted((ROOT / package).rglob("*.py")):
            tree = ast.parse(file.read_text())
            constants = _assigned(tree.body)
            scopes = [
                node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            ]
            for scope in scopes:
                local = constants | _assigned(ast.walk(scope))
                for call in (node for node in ast.walk(scope) if isinstance(node, ast.Call)):
                    for name in _names(call):
                        found.setdefault(name, set()).update(_said(call, local))
    return found


def _assigned(nodes: Iterable[ast.AST]) -> dict[str, ast.expr]:
    return {
        node.targets[0].id: node.value
        for node in nodes
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }


def _names(call: ast.Call) -> Iterator[str]:
    """Yield the error that is constructed, and the reasons among the arguments."""
    for node in (call.func, *call.args):
        if isinstance(node, ast.Attribute) or (isinstance(node, ast.Name) and node is call.func):
            yield node.attr if isinstance(node, ast.Attribute) else node.id


def _said(call: ast.Call, constants: dict[str, ast.expr]) -> Iterator[str]:
    for argument in call.args:
        node = constants.get(argument.id, argument) if isinstance(argument, ast.Name) else argument
        text = "".join(_parts(node))
        if len(text) >= _SHORTEST and " " in text.strip("… "):
            yield _escaped(text)


def _parts(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        for value in node.values:
            yield from _parts(value) if isinstance(value, ast.Constant) else "…"


def _escaped(text: str) -> str:
    """Return a sentence as Markdown that shows each of its characters."""
    return " ".join(re.sub(r"\{self\..*?\}|…+", "…", text).split()).translate(_ESCAPED)
