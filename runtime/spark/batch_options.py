"""How a batch is run: what its handlers, its algorithm and its workers are told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from runtime.algorithms.choice import AlgorithmName, check_name, described_algorithm
from runtime.batches.ledger import STATE_BASED
from runtime.clock import Clock, system_clock
from runtime.errors import UsageError
from runtime.spark.connection import TablePlace
from runtime.spark.job import Wrap

Step = Callable[[str], None]
"""Is called with a short sentence when a batch goes on to its next step."""


def _silent(_: str) -> None: ...


@dataclass(frozen=True)
class BatchOptions:
    """How a batch is run.

    `source` sets the ids of this log apart from those of others. `partitions` is the number of partitions that the
    messages are shuffled to, `in_flight` how many streams a worker works on at most at once on a store on the network.
    `guard` makes a dead letter of a message whose handler looks at a clock, at chance or at the outside.
    `on_difference` fails the batch when the replay of a duplicate differs from what was recorded: stored versions stay,
    and the batch can be resumed with its id either way. `step` is called with a sentence when the batch goes on to its
    next step; what it raises stops the batch there.

    `algorithm` is one of the family in docs/algorithms.md, the same for all batches of a table. `evidence` is the table
    of the de-duplication store or of the tokens; by default they stand in the table of the states. With an algorithm
    other than the state-based one nothing is ever `too_late` and nothing is replayed, so `late` and `on_difference`
    have nothing to say.
    """

    cascade: bool = False
    max_rounds: int = 100
    late: Literal["refuse", "process"] = "refuse"
    on_error: Literal["continue", "stop-stream"] = "continue"
    on_difference: Literal["dead-letter", "fail"] = "dead-letter"
    source: str | None = None
    log_format: str | None = None
    partitions: int | None = None
    in_flight: int = 32
    guard: bool = False
    algorithm: AlgorithmName = "state-based"
    evidence: TablePlace | None = None
    clock: Clock = system_clock
    wrap: Wrap | None = None
    step: Step = _silent

    def __post_init__(self) -> None:
        for name, value, allowed in (
            ("late", self.late, ("refuse", "process")),
            ("on_error", self.on_error, ("continue", "stop-stream")),
            ("on_difference", self.on_difference, ("dead-letter", "fail")),
        ):
            if value not in allowed:
                message = f"{name} is {' or '.join(map(repr, allowed))}, not {value!r}."
                raise UsageError(message)
        check_name(self.algorithm)
        if not self.has_outbox and self.evidence is not None:
            message = "State-based, the evidence is in the versions of the states: it cannot be elsewhere."
            raise UsageError(message)
        if self.has_outbox and (self.late, self.on_difference) != ("refuse", "dead-letter"):
            message = (
                f"With the algorithm {self.algorithm} nothing is too late and nothing is replayed: leave out what is "
                f"to be done then (late, on_difference)."
            )
            raise UsageError(message)

    @property
    def has_outbox(self) -> bool:
        """Whether entities keep what is to be dispatched, so that there is a second pass."""
        return self.algorithm != STATE_BASED

    def described_algorithm(self) -> str:
        """Return the algorithm, and where its evidence is."""
        evidence = self.evidence
        return described_algorithm(
            self.algorithm, None if evidence is None else (evidence.store, evidence.table)
        )

    def described(self) -> str:
        """Return the options that change what a batch gives."""
        more = ", guard=True" if self.guard else ""
        more += f", algorithm={self.described_algorithm()}" if self.has_outbox else ""
        return (
            f"cascade={self.cascade}, late={self.late}, on_error={self.on_error}, source={self.source}{more}"
        )
