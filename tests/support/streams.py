"""Small streams, and what disturbs those who use them: for the tests of the event store."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from eventstore import EventData, InterceptedTable, Partition, StoreUnavailableError, Stream, Table, Value

NOTHING: Mapping[str, Value] = MappingProxyType({})


def event(number: int, properties: Mapping[str, Value] = NOTHING, *, id: str | None = None) -> EventData:  # noqa: A002
    """Return an event that tells its number."""
    return EventData({"N": number, **properties}, id=id)


def events(first: int, last: int) -> list[EventData]:
    return [event(number) for number in range(first, last + 1)]


def events_with_ids(first: int, last: int) -> list[EventData]:
    return [event(number, id=f"id-{number}") for number in range(first, last + 1)]


async def write_all(partition: Partition, given: Sequence[EventData]) -> Stream:
    """Write any number of events to a new stream."""
    stream = Stream(partition)
    for start in range(0, len(given), 49):
        stream = (await Stream.write(stream, *given[start : start + 49])).stream
    return stream


def versions(found: Any) -> list[int]:
    """Return the versions of the events of a slice, of a write, or of themselves."""
    return [each.version for each in getattr(found, "events", found)]


async def collect(items: Any) -> list[Any]:
    return [item async for item in items]


def lost(transaction: int = 1, *, arrives: bool = True) -> dict[str, Any]:
    """Return the hook that loses the answer to a transaction, by its number, or the transaction itself."""
    number = 0

    def lose(name: str, *_call: object) -> None:
        nonlocal number
        number += name == "transact"
        if name == "transact" and number == transaction:
            raise StoreUnavailableError("the connection was lost", outcome_unknown=True)

    return {"after" if arrives else "before": lose}


def disturbed(table: Table, **hooks: Any) -> Any:
    return Partition(InterceptedTable(table, **hooks), "orders-7")
