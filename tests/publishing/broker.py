"""A cluster of brokers that speaks Kafka's protocol: librdkafka's own mock, in a process of its own.

Usage: python -m tests.publishing.broker

It prints its addresses. It keeps no state of transactions: a record is visible to all readers at once, also with
`read_committed`, and stays so when its transaction is aborted; a producer that was superseded is not refused.
"""

from __future__ import annotations

import sys

from confluent_kafka import Producer


def main() -> None:
    """Serve until standard input ends."""
    host = Producer({"bootstrap.servers": "mock", "test.mock.num.brokers": 3, "log_level": 0})
    brokers = host.list_topics(timeout=30).brokers.values()
    print(",".join(f"{each.host}:{each.port}" for each in brokers), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
