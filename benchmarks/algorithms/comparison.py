"""The table that compares the four algorithms: what was measured of them, and what is to be known beside it."""

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
    "requests, token for a message from outside": lambda costs: amount(costs.issue.requests),
    "rows read, duplicate of a recent message": lambda costs: amount(costs.recent.rows_read),
    "rows read, duplicate of an old message": lambda costs: amount(costs.old.rows_read),
    "runs of the handler, duplicate": lambda costs: amount(costs.recent.runs),
    "bytes kept of a message": lambda costs: _growth(costs.growth),
    f"bytes kept of one of {TOGETHER} in a batch": lambda costs: _growth(costs.batched.growth),
    "bytes more while it waits to be processed": lambda costs: about(costs.issue.stored_bytes),
    "bytes more while its output waits": lambda costs: about(costs.waiting),
}

WORDS: Mapping[str, Mapping[AlgorithmName, str]] = {
    "what shows that a message was processed": {
        "state-based": "its version, which may hold the state",
        "outbox": "its id in the entity's row",
        "deduplication-store": "its id in a row of its own",
        "tokens": "that its token is gone",
    },
    "a duplicate is recognised": {
        "state-based": "until `consistent truncate` cuts the version",
        "outbox": "until the id is forgotten by age",
        "deduplication-store": "until the id is forgotten by age",
        "tokens": "always",
    },
    "a copy that is delivered after that": {
        "state-based": "is refused as `too_late`",
        "outbox": "is processed again",
        "deduplication-store": "is processed again",
        "tokens": "is a duplicate",
    },
    "handlers must be deterministic": {
        "state-based": "yes",
        "outbox": "no",
        "deduplication-store": "no",
        "tokens": "no",
    },
}


def comparison(found: Mapping[AlgorithmName, Costs]) -> Grid:
    """Return the table, a column for each algorithm."""
    figures = [[title, *map(figure, found.values())] for title, figure in FIGURES.items()]
    words = [[title, *(by_name[name] for name in found)] for title, by_name in WORDS.items()]
    return Grid(["", *(f"`{name}`" for name in found)], [*figures, *words])


def _growth(growth: Growth) -> str:
    at_first, in_the_end = about(growth.at_first), about(growth.in_the_end)
    return in_the_end if at_first == in_the_end else f"{in_the_end}; {at_first} while it is new"
