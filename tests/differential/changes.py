"""The operations of random transactions, before it is known which ETag each backend gave."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from hypothesis import strategies as st

from eventstore import ANY_ETAG, Verb
from tests.differential.values import (
    BULKY_KEYS,
    BULKY_PROPERTIES,
    PROPERTIES,
    RATHER_BULKY_PROPERTIES,
    TOO_BULKY_PROPERTIES,
    WRONG_KEYS,
    WRONG_PROPERTIES,
    Repeated,
    Wide,
)

CONDITIONAL = (Verb.REPLACE, Verb.MERGE, Verb.DELETE)


class Remembered(Enum):
    """An ETag that a program got from each backend before."""

    CURRENT = "the last one of the row, which may be deleted"
    STALE = "an older one of the row"
    FOREIGN = "one of another row"
    OTHER_DIGITS = "the last one with its digits in another script"


@dataclass(frozen=True, slots=True)
class Change:
    """An operation whose ETag is given, or one to be looked up for each backend."""

    verb: Verb
    row_key: str
    properties: Mapping[str, Any] | Wide = field(default_factory=dict)
    etag: Remembered | str | None = None


Changes = list[Change]

# A number could be an ETag of some backend by chance, so there is none.
_MADE_UP = st.sampled_from(
    [
        *("no etag at all", "-1", "1.0", "0x1", " ", "\t", "é", "\U0001d7dc"),
        *("None", "**", '"*"', "* ", "x" * 3000),
        *('W/"stale"', 'w/"stale"', '"strong"', 'W/""', 'W/"', 'W/"*"'),
        *('W/"a"b"', 'W/"a\\"b"', 'W/"a", W/"b"'),
        *("W/\"datetime'2024-01-01T00%3A00%3A00.0000000Z'\"", "x\r\nX-Injected: 1", 'W/"\n"'),
    ]
)
_ETAGS = st.one_of(st.just(Remembered.CURRENT), st.just(ANY_ETAG), st.sampled_from(Remembered), _MADE_UP)


@st.composite
def changes_of(draw: st.DrawFn, row_keys: st.SearchStrategy[str]) -> Change:
    """Draw a change that a table may refuse, but that is made as it should be."""
    verb = draw(st.sampled_from(Verb))
    properties = {} if verb is Verb.DELETE and draw(st.booleans()) else draw(PROPERTIES)
    return Change(verb, draw(row_keys), properties, draw(_ETAGS) if verb in CONDITIONAL else None)


@st.composite
def wrong_changes_of(draw: st.DrawFn, row_keys: st.SearchStrategy[str]) -> Change:
    right = draw(changes_of(row_keys))
    mistake = draw(st.sampled_from(["properties", "key", "etag"]))
    if mistake == "properties":
        return replace(right, properties=draw(WRONG_PROPERTIES))
    if mistake == "key":
        return replace(right, row_key=draw(WRONG_KEYS))
    if right.verb in CONDITIONAL:
        return replace(right, etag=draw(st.sampled_from([None, ""])))
    return replace(right, etag=draw(st.just("") | _ETAGS))


@st.composite
def transactions(draw: st.DrawFn, row_keys: st.SearchStrategy[str], min_size: int = 1) -> Changes:
    return draw(
        st.lists(changes_of(row_keys), min_size=min_size, max_size=8, unique_by=lambda change: change.row_key)
    )


@st.composite
def wrong_transactions(draw: st.DrawFn, row_keys: st.SearchStrategy[str]) -> Changes:
    """Draw a transaction with a mistake or two among what is right, or one that is wrong as a whole."""
    right = draw(transactions(row_keys, min_size=0))
    if draw(st.booleans()):
        wrong = draw(st.lists(wrong_changes_of(row_keys), min_size=1, max_size=2))
        return draw(st.permutations(right[:4] + wrong))
    return draw(st.one_of(st.just([]), st.just(right + right[:1]), _LARGE_TRANSACTIONS))


@st.composite
def bulky_transactions(draw: st.DrawFn) -> Changes:
    """Draw a transaction of rows as large as can be, or larger.

    Azurite has two limits of its own, which are kept out of: it takes a merge that makes a row too large, and
    refuses all but the insert of a row whose JSON has more than 1 MiB.
    """
    row_keys = draw(st.lists(st.sampled_from(BULKY_KEYS), min_size=1, max_size=2, unique=True))
    return [draw(_bulky_changes(row_key)) for row_key in row_keys]


@st.composite
def _bulky_changes(draw: st.DrawFn, row_key: str) -> Change:
    verb = draw(st.sampled_from([Verb.INSERT, Verb.DELETE, Verb.INSERT_OR_REPLACE, Verb.REPLACE]))
    if verb is Verb.DELETE:
        return Change(verb, row_key, {}, Remembered.CURRENT)
    if verb is Verb.INSERT:
        return Change(verb, row_key, draw(BULKY_PROPERTIES | RATHER_BULKY_PROPERTIES | TOO_BULKY_PROPERTIES))
    properties = draw(RATHER_BULKY_PROPERTIES | TOO_BULKY_PROPERTIES)
    return Change(verb, row_key, properties, Remembered.CURRENT if verb in CONDITIONAL else None)


def _many(count: int) -> Changes:
    return [Change(Verb.INSERT_OR_REPLACE, f"many-{number:03}", {"A": number}) for number in range(count)]


def _heavy(length: int) -> Changes:
    """Return a transaction of text each of whose characters is sent as six bytes."""
    text = {"A": Repeated("\x00", length)}
    return [Change(Verb.INSERT_OR_REPLACE, f"heavy-{number}", text) for number in range(60)]


# As sent, 60 texts of these lengths have a little less than the 4 MiB of a transaction, or a little more.
_LARGE_TRANSACTIONS = st.one_of(
    st.sampled_from([100, 101]).map(_many), st.integers(11_400, 11_600).map(_heavy)
)
