"""The markers of slices in Kafka, as far as they are committed."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

MARKERS = "consistent-slices"
"""The topic of the markers, whose keys are the names of slices. It must keep each of them: compact it, if anything."""

TRANSACTION_SECONDS = 60
"""After how long the broker ends a transaction whose producer died."""

_POLL_SECONDS = 1.0
_WAIT_SECONDS = 3 * TRANSACTION_SECONDS
_REQUEST_SECONDS = 60.0


class Markers:
    """Reads on in the topic of the markers whenever it is asked."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        own = {**settings, "group.id": MARKERS, "enable.auto.commit": False}
        self._ends = Consumer({**own, "isolation.level": "read_uncommitted"})
        self._committed = Consumer({**own, "isolation.level": "read_committed", "enable.partition.eof": True})
        self._reached: dict[int, int] = {}
        self._known: set[str] = set()

    def have(self, name: str) -> bool:
        """Say whether a slice was sent.

        Reads up to what any producer had sent when this was called. A transaction that is open there hides the
        markers behind it, so this waits until it has ended, by its producer or by its time-out.
        """
        ends = self._ends_now()
        if not self._reached:
            self._reached = dict.fromkeys(ends, 0)
            self._committed.assign([TopicPartition(MARKERS, each, 0) for each in ends])
        deadline = time.monotonic() + _WAIT_SECONDS
        while any(self._reached[each] < end for each, end in ends.items()):
            if time.monotonic() > deadline:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))  # noqa: SLF001 - that is its public name
            self._read(_POLL_SECONDS)
        return name in self._known

    def close(self) -> None:
        """Close the connections."""
        self._ends.close()
        self._committed.close()

    def _ends_now(self) -> dict[int, int]:
        partitions = self._ends.list_topics(MARKERS, timeout=_REQUEST_SECONDS).topics[MARKERS].partitions
        places = [TopicPartition(MARKERS, each) for each in partitions]
        return {
            place.partition: self._ends.get_watermark_offsets(place, timeout=_REQUEST_SECONDS)[1]
            for place in places
        }

    def _read(self, seconds: float) -> None:
        record = self._committed.poll(seconds)
        if record is None:
            return
        error = record.error()
        if error is not None and error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 - that is its public name
            raise KafkaException(error)
        partition, offset = record.partition() or 0, record.offset() or 0
        self._reached[partition] = max(self._reached[partition], offset if error else offset + 1)
        if error is None:
            self._known.add((record.key() or b"").decode())
