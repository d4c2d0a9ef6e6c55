"""The command that is under way, as it can be typed again."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from runtime.errors import BatchFailedError, BatchHeldBackError, TargetError

_given: ContextVar[Sequence[str] | None] = ContextVar("arguments", default=None)

_STORES = ("--store", "--deduplication-store", "--token-store", "--publish", "--to", "--header")
_SECRETS = ("accountkey=", "sharedaccesssignature=", "sig=")
_IN_URL = re.compile(r"://[^/\s]*:[^/\s]+@")
"""A password in the url of a target or of a store for keys."""

_HEADER = re.compile(r"(proxy-)?authorization=(?!env:)", re.IGNORECASE)
_HIDDEN = "..."


def remember(arguments: Sequence[str] | None) -> None:
    """Keep the arguments of the command, by default those of the process."""
    _given.set(list(sys.argv[1:] if arguments is None else arguments))


def holds_secret() -> bool:
    """Say whether a secret was typed into the command, where other users see it among the processes."""
    return any(map(_is_secret, _given.get() or ()))


def command_with(option: str, value: str) -> str:
    """Return the command with another value of an option, to be pasted into a shell; it shows no secret."""
    return shlex.join(["consistent", *map(_shown, _without(option)), option, value])


def abandoning(store: str, table: str, batch_id: str) -> str:
    """Return the command that abandons a batch."""
    words = ["--store", store, "--table", table, "--abandon", batch_id]
    return shlex.join(["consistent", "batches", *map(_shown, words)])


def about_letters(command: str, store: str, table: str, *more: str) -> str:
    """Return a command about the letters of a table."""
    return shlex.join(["consistent", command, *map(_shown, ["--store", store, "--table", table]), *more])


@contextmanager
def resumable(batch_id: str, store: str, table: str) -> Iterator[None]:
    """Say of a batch that fails by which command it goes on, or is given up."""
    try:
        yield
    except BatchHeldBackError as error:
        abandon = abandoning(store, table, batch_id)
        raise BatchHeldBackError(f"{error} To abandon it: {abandon}") from error
    except (BatchFailedError, TargetError) as error:
        again = f"To go on: {command_with('--batch-id', batch_id)}"
        if "abandon" in str(error):
            again += f" To abandon a batch: {abandoning(store, table, 'ID')}"
        raise type(error)(f"{error} {again}") from error


def _without(option: str) -> Iterator[str]:
    given = iter(_given.get() or ())
    for word in given:
        if word == option:
            next(given, None)
        elif not word.startswith(f"{option}="):
            yield word


def _is_secret(word: str) -> bool:
    named = any(secret in word.lower() for secret in _SECRETS)
    return named or bool(_IN_URL.search(word) or _HEADER.search(word))


def _shown(word: str) -> str:
    if not _is_secret(word):
        return word
    option, equals, _ = word.partition("=")
    return f"{option}={_HIDDEN}" if equals and option in _STORES else _HIDDEN
