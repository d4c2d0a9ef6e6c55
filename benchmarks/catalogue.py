"""The contenders by name, what each needs, and whom each is compared with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec

from benchmarks.azurite import azurite_binary
from benchmarks.contender import Contender
from benchmarks.postgres import postgres_programs
from benchmarks.sizes import Amount

_EXTRA = "`python -m benchmarks compare` installs it"


@dataclass(frozen=True, slots=True)
class Entry:
    """A contender: where its class is, which log it works on, and the modules without which it is left out."""

    name: str
    place: str
    amount: Amount
    modules: tuple[str, ...] = ()
    needs_azurite: bool = False
    needs_postgres: bool = False

    def load(self) -> type[Contender]:
        """Return the class."""
        module, _, name = self.place.partition(":")
        found: type[Contender] = getattr(import_module(f"benchmarks.{module}"), name)
        return found

    def why_not(self) -> str | None:
        """Say why the contender cannot run here, None when it can."""
        missing = [module for module in self.modules if not _is_there(module)]
        if missing:
            return f"the package of {', '.join(missing)} is not installed ({_EXTRA})"
        if self.needs_azurite and azurite_binary() is None:
            return "Azurite is not installed (`make setup-test` installs it)"
        if self.needs_postgres and postgres_programs() is None:
            return "PostgreSQL is not installed (`make setup-test` installs it)"
        return None


@dataclass(frozen=True, slots=True)
class Comparison:
    """A ratio of messages per second, with the least that is aimed at; None when it is only told.

    Given a fact, something that each takes: how many times as much of it the other takes.
    """

    one: str
    other: str
    goal: float | None
    fact: str | None = None

    @property
    def name(self) -> str:
        """The ratio in words."""
        if self.fact is None:
            return f"{self.one} / {self.other}"
        return f"{self.other} / {self.one}, {self.fact.replace('_', ' ')}"


@dataclass(frozen=True, slots=True)
class Limit:
    """A fact of a contender, with the most that is aimed at."""

    contender: str
    fact: str
    goal: float


_STREAMING = ("google.protobuf",)
_ENTRIES = (
    Entry("consistent", "contenders.consistent:Consistent", "batch"),
    Entry("consistent-history", "contenders.consistent:ConsistentHistory", "batch"),
    Entry("bare-fold", "contenders.bare_fold:BareFold", "batch"),
    Entry("bare-fold-parquet", "contenders.bare_fold:BareFoldParquet", "batch"),
    Entry("consistent-replay", "contenders.consistent:ConsistentReplay", "batch"),
    Entry("consistent-verify", "contenders.consistent:ConsistentVerify", "batch"),
    Entry("streaming-ids", "peers.streaming:StreamingIds", "batch", _STREAMING),
    Entry("streaming-dropped", "peers.streaming:StreamingDropped", "batch", _STREAMING),
    Entry("eventsourcing", "peers.sourcing:Eventsourcing", "single", ("eventsourcing",)),
    Entry("eventsourcing-cached", "peers.sourcing:EventsourcingCached", "single", ("eventsourcing",)),
    Entry("dbos", "peers.durable:Durable", "workflow", ("dbos",)),
    Entry(
        "consistent-azurite",
        "contenders.consistent_network:ConsistentAzurite",
        "azurite",
        needs_azurite=True,
    ),
    Entry("bare-sdk", "peers.bare_sdk:BareSdk", "azurite", needs_azurite=True),
    Entry("bare-http", "peers.bare_http:BareHttp", "azurite", needs_azurite=True),
    Entry("store-only", "peers.store_only:StoreOnly", "azurite", needs_azurite=True),
    Entry("article", "peers.article:Article", "article", needs_azurite=True),
    Entry("client-store", "peers.client_store:ClientStore", "client", needs_azurite=True),
    Entry("client-sdk", "peers.client_sdk:ClientSdk", "client", needs_azurite=True),
    Entry(
        "consistent-postgres",
        "contenders.consistent_network:ConsistentPostgres",
        "batch",
        needs_postgres=True,
    ),
    Entry("bare-fold-psycopg", "peers.bare_psycopg:BareFoldPsycopg", "batch", needs_postgres=True),
    Entry("store-postgres", "peers.bare_psycopg:StorePostgres", "batch", needs_postgres=True),
    Entry("bare-psycopg", "peers.bare_psycopg:BarePsycopg", "batch", needs_postgres=True),
    Entry(
        "eventsourcing-postgres",
        "peers.sourcing:EventsourcingPostgres",
        "single",
        ("eventsourcing", "psycopg_pool"),
        needs_postgres=True,
    ),
    Entry("dbos-postgres", "peers.durable:DurablePostgres", "workflow", ("dbos",), needs_postgres=True),
)
CONTENDERS: Mapping[str, Entry] = {entry.name: entry for entry in _ENTRIES}

COMPARISONS = (
    Comparison("consistent", "bare-fold", 0.7),
    Comparison("consistent", "bare-fold-parquet", None),
    Comparison("consistent-history", "bare-fold", None),
    Comparison("consistent-replay", "consistent", 0.9),
    Comparison("consistent-verify", "consistent", None),
    Comparison("consistent-verify", "consistent-replay", None),
    Comparison("consistent", "streaming-ids", 5),
    Comparison("consistent", "streaming-dropped", 3.3),
    Comparison("consistent", "eventsourcing", 40),
    Comparison("consistent", "eventsourcing-cached", None),
    Comparison("consistent", "dbos", None),
    Comparison("consistent-azurite", "bare-sdk", 1),
    Comparison("consistent-azurite", "bare-http", 0.6),
    Comparison("consistent-azurite", "store-only", None),
    Comparison("consistent-azurite", "article", 56),
    Comparison("client-store", "client-sdk", 3.8, "cpu_ms_of_append_of_1"),
    Comparison("client-store", "client-sdk", 10, "cpu_ms_of_append_of_50"),
    Comparison("client-store", "client-sdk", 3.5, "cpu_ms_of_read_of_100"),
    Comparison("client-store", "client-sdk", 1.7, "cpu_ms_of_open"),
    Comparison("client-store", "client-sdk", 1, "ms_of_open_at_once"),
    Comparison("consistent-postgres", "consistent", None),
    Comparison("consistent-postgres", "bare-fold-psycopg", 0.8),
    Comparison("consistent-postgres", "bare-psycopg", None),
    Comparison("store-postgres", "bare-psycopg", None),
    Comparison("consistent-postgres", "eventsourcing-postgres", 20),
    Comparison("consistent-postgres", "dbos-postgres", 50),
)
LIMITS = (
    Limit("consistent", "bytes_per_version", 85),
    Limit("consistent-postgres", "bytes_per_version", 110),
)


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False
