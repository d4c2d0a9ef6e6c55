"""The groups of options that several commands share."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from eventstore import KeyRange, Table, connect
from runtime.cli.masters import place_of_work
from runtime.cli.message_logs import check_log
from runtime.cli.options import (
    DEFAULT_MASTER,
    DeduplicationStoreUrl,
    DeduplicationTableName,
    Format,
    LogFile,
    Master,
    MaxBody,
    MaxDepth,
    MaxError,
    MaxHeaders,
    MaxLine,
    MaxPublished,
    MaxPublishedBytes,
    Messages,
    OnSpark,
    Remote,
    Source,
    TokenStoreUrl,
    TokenTableName,
)
from runtime.cli.places import Named, Place
from runtime.cli.sessions import working
from runtime.cli.short_lives import settings_for
from runtime.cli.stores import check_table, on_table
from runtime.messages.limits import USUAL, MessageLimits

if TYPE_CHECKING:
    from runtime.cli.sessions import ShownSession
    from runtime.spark.sessions.session import Session


@dataclass(frozen=True)
class LogOptions:
    """Which message log is read, and how."""

    messages: Messages
    log_format: Format = None
    source: Source = None

    def check(self, master: str) -> int | None:
        """Return the size of the log in bytes, None where it is not on the disks of this machine.

        Raises `LogError` for what is no log, as far as that can be told without Spark, and `UsageError` for a source
        that cannot be.
        """
        from runtime.spark.logs.log import check_source

        check_source(self.source or "")
        return check_log(self.messages, master, None if self.log_format is None else self.log_format.value)

    def named(self) -> dict[str, Any]:
        """Return how it is read, as options of a batch or of a verification."""
        return {
            "log_format": None if self.log_format is None else self.log_format.value,
            "source": self.source,
        }


@dataclass(frozen=True)
class LimitOptions:
    """How large a message may be."""

    # Sizes are parsed like what is typed.
    max_line: MaxLine = "1MiB"  # type: ignore[assignment]
    max_body: MaxBody = "1MiB"  # type: ignore[assignment]
    max_headers: MaxHeaders = "64KiB"  # type: ignore[assignment]
    max_published: MaxPublished = USUAL.outputs
    max_published_bytes: MaxPublishedBytes = "4MiB"  # type: ignore[assignment]
    max_error: MaxError = USUAL.error
    max_depth: MaxDepth = USUAL.depth

    def limits(self) -> MessageLimits:
        """Return the limits of messages. Raises `UsageError` for what cannot be."""
        return MessageLimits(
            self.max_line,
            self.max_body,
            self.max_headers,
            self.max_published,
            self.max_published_bytes,
            self.max_error,
            self.max_depth,
        )


@dataclass(frozen=True)
class OtherStores:
    """Where the de-duplication store and the token store are."""

    deduplication_store: DeduplicationStoreUrl = None
    deduplication_table: DeduplicationTableName = None
    token_store: TokenStoreUrl = None
    token_table: TokenTableName = None

    @property
    def deduplication(self) -> Named:
        """What is said of the de-duplication store."""
        return Named(self.deduplication_store, self.deduplication_table)

    @property
    def tokens(self) -> Named:
        """What is said of the token store."""
        return Named(self.token_store, self.token_table)


@dataclass(frozen=True)
class SparkOptions:
    """Where Spark works, and what takes its log."""

    master: Master = DEFAULT_MASTER
    remote: Remote = None
    log_file: LogFile = None

    def __post_init__(self) -> None:
        self.place  # noqa: B018 - what cannot be is refused

    @property
    def place(self) -> str:
        """Where Spark works: a master, or the url of a server of Spark Connect. Raises `UsageError` for neither."""
        return place_of_work(self.master, self.remote) or self.master

    def working(
        self, when_stopped: str, log_bytes: int | None = None
    ) -> AbstractContextManager[ShownSession]:
        """Start Spark, and give the session and the progress to report steps to; see `sessions.working`.

        `log_bytes` is the size of the log that it is to read, where that is known.
        """
        return working(self.place, self.log_file, when_stopped=when_stopped, settings=settings_for(log_bytes))


@dataclass(frozen=True)
class ScanOptions:
    """Where a table is scanned: in this process, or range by range on the workers of Spark."""

    master: OnSpark = None
    remote: Remote = None
    log_file: LogFile = None

    def __post_init__(self) -> None:
        self.place  # noqa: B018 - what cannot be is refused

    @property
    def place(self) -> str | None:
        """Where Spark works; None for this process. Raises `UsageError` for what is neither."""
        return place_of_work(self.master, self.remote)

    def scan(
        self,
        states: Place,
        function: Callable[[Table, KeyRange], Coroutine[Any, Any, Any]],
        merge: Callable[[Any], object],
        *,
        step: str,
        stopped: str = "Stopped. Nothing was written.",
        prefix: str = "",
    ) -> None:
        """Call an async function with a table and its keys that have a prefix, or with ranges of them.

        Each result is merged as the value that its `document()` returns. `step` says what is being done, and `stopped`
        what remains after Ctrl-C.
        """
        if self.place is None:
            keys = KeyRange(prefix)
            merge(on_table(*states, lambda opened: function(opened, keys)).document())
            return
        check_table(*states)
        with self.on_spark(step, stopped, states) as spark:
            from runtime.spark.scan import ForEachRange, scan
            from runtime.spark.workers.connection import TablePlace

            scan(spark, TablePlace(*states), ForEachRange(function), merge, prefix=prefix)

    @contextmanager
    def on_spark(self, step: str, stopped: str, *places: Place) -> Iterator[Session]:
        """Start Spark for one step. Raises `UsageError` where workers would not see the same stores."""
        from runtime.spark.workers.connection import check_scope

        master = self.place or ""
        for each in places:
            check_scope(connect(each.store).scope, master)
        with working(master, self.log_file, when_stopped=stopped) as (spark, progress):
            progress.step(step)
            yield spark
            progress.done()
