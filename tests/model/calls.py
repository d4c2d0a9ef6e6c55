"""Calls: what code under check asks of the world, and waits for.

Each call suspends the coroutine that makes it, and is answered, or never answered, by the explorer. One call is one
atomic operation.
"""

from collections.abc import Generator, Sequence
from typing import Any, NamedTuple

from eventstore import Operation, Table

_READS = frozenset({"get", "query", "scan", "barrier"})
OUTSIDE = "outside"
REDIS = "redis"


class Call(NamedTuple):
    """A call of a table, by its name, of `redis`, or of what is `outside`: where published messages go."""

    target: str
    name: str
    arguments: tuple[Any, ...]

    @property
    def changes(self) -> bool:
        """Whether it may change something, so that a lost answer leaves open whether it did."""
        return self.name not in _READS

    @property
    def is_barrier(self) -> bool:
        return self.name == "barrier"

    @property
    def makes_durable(self) -> bool:
        """Whether all that was written survives a power cut once it is answered. Redis appends to its log before."""
        return self.is_barrier or self.target == REDIS


class _Suspended:
    __slots__ = ("call",)

    def __init__(self, call: Call) -> None:
        self.call = call

    def __await__(self) -> Generator[Call, Any, Any]:
        return (yield self.call)


async def ask(target: str, name: str, *arguments: Any) -> Any:
    """Suspend until the explorer answers this call."""
    return await _Suspended(Call(target, name, arguments))


async def publish(output: object) -> None:
    await ask(OUTSIDE, "publish", output)


class SteppedTable(Table):
    scope = "process"

    def __init__(self, name: str = "states") -> None:
        self.name = name

    async def get(self, partition_key: str, row_key: str) -> Any:
        return await ask(self.name, "get", partition_key, row_key)

    async def query(self, partition_key, first, last, *, select=None, continuation=None) -> Any:
        chosen = None if select is None else tuple(select)
        return await ask(self.name, "query", partition_key, first, last, chosen, continuation)

    async def scan(self, row_key, first="", last=None, *, select=None, continuation=None) -> Any:
        chosen = None if select is None else tuple(select)
        return await ask(self.name, "scan", row_key, first, last, chosen, continuation)

    async def transact(self, partition_key: str, operations: Sequence[Operation]) -> Any:
        return await ask(self.name, "transact", partition_key, tuple(operations))

    async def barrier(self) -> None:
        await ask(self.name, "barrier")
