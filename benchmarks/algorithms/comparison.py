"""The table that compares the four algorithms: measured figures, and properties that do not need measuring."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from benchmarks.algorithms.costs import TOGETHER, Costs, Growth
from benchmarks.algorithms.grid import Grid, about, amount
from runtime.algorithms.choice import AlgorithmName

PART = "algorithms"

Figure = Callable[[Costs], str]

FIGURES: Mapping[str, Figure] = {
    "requests, new message with an output for a handler": lambda costs: amount(costs.taken.requests),
    "requests, new message with an output for no handler": lambda costs: amount(costs.untaken.requests),
    "requests, new message without outputs": lambda costs: amount(costs.silent.requests),
    f"requests, {TOGETHER} new messages of a stream in a batch": lambda costs: amount(costs.batched.requests),
    "requests, duplicate of a recent message": lambda costs: amount(costs.recent.requests),
    "requests, duplicate of an old message": lambda costs: amount(costs.old.requests),
    "requests, token for an external message": lambda costs: amount(costs.issue.requests),
    "rows read, duplicate of a recent message": lambda costs: amount(costs.recent.rows_read),
    "rows read, duplicate of an old message": lambda costs: amount(costs.old.rows_read),
    "handler calls, duplicate": lambda costs: amount(costs.recent.runs),
    "bytes kept per message": lambda costs: _growth(costs.growth),
    f"bytes kept per message, batches of {TOGETHER}": lambda costs: _growth(costs.batched.growth),
    "further bytes until it is processed": lambda costs: about(costs.issue.stored_bytes),
    "further bytes until its output is processed": lambda costs: about(costs.waiting),
}

WORDS: Mapping[str, Mapping[AlgorithmName, str]] = {
    "proof that a message was processed": {
        "state-based": "its version",
        "outbox": "its id in the entity",
        "deduplication-store": "its id in the store",
        "tokens": "its token is gone",
    },
    "duplicates are recognised": {
        "state-based": "until the version is truncated",
        "outbox": "until the id is evicted",
        "deduplication-store": "until the id is evicted",
        "tokens": "always",
    },
    "a copy after that": {
        "state-based": "refused, `too_late`",
        "outbox": "processed again",
        "deduplication-store": "processed again",
        "tokens": "duplicate",
    },
    "deterministic handlers": {
        "state-based": "required",
        "outbox": "not required",
        "deduplication-store": "not required",
        "tokens": "not required",
    },
}


def comparison(found: Mapping[AlgorithmName, Costs]) -> Grid:
    """Return the table, a column for each algorithm."""
    figures = [[title, *map(figure, found.values())] for title, figure in FIGURES.items()]
    words = [[title, *(by_name[name] for name in found)] for title, by_name in WORDS.items()]
    return Grid(["", *(f"`{name}`" for name in found)], [*figures, *words])


def _growth(growth: Growth) -> str:
    at_first, in_the_end = about(growth.at_first), about(growth.in_the_end)
    return in_the_end if at_first == in_the_end else f"{in_the_end}; {at_first} while new"
