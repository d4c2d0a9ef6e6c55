"""The options of a consumer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar

from runtime.algorithms.choice import AlgorithmName
from runtime.batch_options import BatchOptions
from runtime.errors import UsageError
from runtime.ledger.ledger import STATE_BASED
from runtime.messages.records import AS_JSON, Decoding
from runtime.options import check_fields, option, option_of


@dataclass(frozen=True, kw_only=True)
class ServeOptions:
    """How a consumer reads ahead, and when it stops."""

    GROUP: ClassVar = "serve"

    names: Mapping[str, str] = option(
        "The topic or queue for outputs of a type; may be repeated. By default it has the name of the type.",
        default=dict,
        name="--map",
        metavar="TYPE=NAME",
    )
    decoding: Decoding = AS_JSON
    read_ahead: int = option(
        "Pause the source while N messages are not acknowledged.", default=10_000, metavar="N", min=1
    )
    read_ahead_bytes: int = option(
        "Pause the source while they exceed this size.", default=64 * 2**20, parse="size", min=1
    )
    linger_ms: int = option(
        "Wait up to N milliseconds for more messages of a stream, which then share a transaction.",
        default=2,
        metavar="N",
        min=0,
        max=10_000,
    )
    fold: int = option(
        "Handle up to N messages of a stream in one transaction.", default=500, metavar="N", min=1, max=5_000
    )
    concurrency: int = option(
        "Handle up to N streams at once on a network store.", default=64, metavar="N", min=1, max=1_024
    )
    drain: timedelta = option(
        "After SIGTERM, finish messages in progress within this time.",
        default=timedelta(seconds=20),
        metavar="TIME",
    )
    dead_letters: str | None = option(
        "Also send rejected messages to this target, as messages of type DeadLetter with headers `reason` and `error`. "
        "A URL as for --publish.",
        default=None,
        name="--dead-letter-queue",
        is_secret=True,
        metavar="URL",
    )
    handler_timeout: timedelta = option(
        "Interrupt slower handlers; the message is rejected.", default=timedelta(seconds=30), metavar="TIME"
    )
    crashes: str | None = option(
        "The folder that records which messages killed consumers. In a container it must be a volume. By default a "
        "folder for temporary files.",
        default=None,
        metavar="FOLDER",
    )
    documents: str | None = option_of(BatchOptions, "documents")
    algorithm: AlgorithmName = option(
        "The algorithm of the table, which must be state-based.", default=STATE_BASED, group="", is_rare=True
    )
    health_port: int | None = option(
        "Answer /livez, /readyz and /metrics on this port of 127.0.0.1; 0 chooses a free one, which is logged.",
        default=None,
        metavar="PORT",
        min=0,
        max=65_535,
    )

    def __post_init__(self) -> None:
        check_fields(self)
        if self.algorithm != STATE_BASED:
            raise UsageError(f"Live queues need the algorithm {STATE_BASED}, not {self.algorithm}.")
