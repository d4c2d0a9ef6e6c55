"""Expressions as SQL text: Java is called once for the text, where columns take some calls for each part of it."""

from __future__ import annotations

from collections.abc import Iterable


def text(value: str) -> str:
    """Return a text as a literal, whatever it holds: Spark puts settings in place of names after a dollar sign."""
    escaped = value.replace("\\", r"\\").replace("'", r"\'").replace("${", r"\u0024{")
    return f"'{escaped}'"


def texts(values: Iterable[str]) -> str:
    """Return literals, as a list has them."""
    return ", ".join(map(text, values))


def first_of(cases: Iterable[tuple[str, str]], otherwise: str | None = None) -> str:
    """Return the value of the first condition that holds, null or another one when none does.

    Spark writes code for a case inside another one again for each level, so they stand side by side.
    """
    branches = " ".join(f"WHEN {condition} THEN {value}" for condition, value in cases)
    if not branches:
        return otherwise or "NULL"
    return f"CASE {branches} END" if otherwise is None else f"CASE {branches} ELSE {otherwise} END"
