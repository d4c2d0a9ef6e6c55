"""The series by name, and their plans at each size of a run."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.growth.appends import SmallAppends
from benchmarks.growth.duplicates import Duplicates
from benchmarks.growth.history import History
from benchmarks.growth.ledger import LedgerSize
from benchmarks.growth.policy import UnderPolicy
from benchmarks.growth.series import Plan, Series
from benchmarks.growth.states import StateSize
from benchmarks.growth.streams import MessagesPerStream, StreamsPerBatch

SERIES: Mapping[str, type[Series]] = {
    "messages-per-stream": MessagesPerStream,
    "streams-per-batch": StreamsPerBatch,
    "history": History,
    "state-size": StateSize,
    "duplicates": Duplicates,
    "small-appends": SmallAppends,
    "ledger": LedgerSize,
    "under-policy": UnderPolicy,
}

_STATES = (50, 500, 5_000, 50_000, 300_000, 500_000)
_SHARES = (0, 1, 10, 25, 50, 75, 90, 100)
_HUNDREDS = range(100, 1_001, 100)
_ENDED = (10, 10_000, 1_000_000)

SIZES: Mapping[str, Mapping[str, Plan]] = {
    "default": {
        "messages-per-stream": Plan((1, 10, 100, 1_000, 10_000), 10_000, 5),
        "streams-per-batch": Plan((1, 10, 100, 1_000, 5_000), 1_000, 5),
        "history": Plan((0, 100, 1_000, 10_000, 100_000), 100, 15),
        "state-size": Plan(_STATES, 200, 5),
        "duplicates": Plan(_SHARES, 5_000, 5),
        "small-appends": Plan(_HUNDREDS, 10, 5),
        "ledger": Plan(_ENDED, 20, 5),
        "under-policy": Plan(_HUNDREDS, 10, 3),
    },
    "full": {
        "messages-per-stream": Plan((1, 10, 100, 1_000, 10_000, 100_000), 100_000, 5),
        "streams-per-batch": Plan((1, 10, 100, 1_000, 10_000, 100_000), 5_000, 3),
        "history": Plan((0, 100, 1_000, 10_000, 100_000, 1_000_000), 100, 15),
        "state-size": Plan(_STATES, 1_000, 5),
        "duplicates": Plan(_SHARES, 50_000, 5),
        "small-appends": Plan(_HUNDREDS, 10, 15),
        "ledger": Plan(_ENDED, 100, 15),
        "under-policy": Plan(_HUNDREDS, 10, 15),
    },
}
