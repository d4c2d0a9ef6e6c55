"""The options that several commands share, each with what it implies."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, get_args, get_origin, get_type_hints

import typer

from eventstore import KeyRange, Table, connect
from runtime.batch_options import BatchOptions
from runtime.cli.checks import Named, Place, check_log, on_table, require_table
from runtime.cli.sessions import place_of_work, settings_for, working
from runtime.messages.limits import USUAL, MessageLimits

if TYPE_CHECKING:
    from runtime.cli.sessions import ShownSession
    from runtime.spark.session import Session


# Durations as people write them: 30s, 15m, 24h, 7d, 2w.

DURATION_FORMS = "30s, 15m, 24h, 7d or 2w"

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 24 * 3600, "w": 7 * 24 * 3600}
_MICROSECONDS = 1_000_000
_DURATION = re.compile(r"([0-9]{1,9})([smhdw])")


def parse_duration(text: str) -> int:
    """Return the microseconds of a duration: a whole number and one of s, m, h, d, w.

    Raises `typer.BadParameter` for anything else.
    """
    match = _DURATION.fullmatch(text.strip().lower())
    if match is None:
        raise typer.BadParameter(f"{text!r} is no duration: write {DURATION_FORMS}.")
    return int(match[1]) * _SECONDS[match[2]] * _MICROSECONDS


def duration_text(microseconds: int) -> str:
    """Return a duration as `parse_duration` takes it, in the largest unit that it is whole in."""
    seconds = microseconds // _MICROSECONDS
    unit = max((unit for unit, each in _SECONDS.items() if seconds % each == 0), key=_SECONDS.__getitem__)
    return f"{seconds // _SECONDS[unit]}{unit}"


# Sizes as people write them: 1000, 64KiB, 1MiB, 2GiB.

SIZE_FORMS = "1000, 64KiB, 1MiB or 2GiB"

_BYTES = {"": 1, "B": 1, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
_SIZE = re.compile(r"([0-9]{1,15})\s*(|B|KIB|MIB|GIB)")


def size_text(size: int) -> str:
    """Return a size as `parse_size` takes it, in the largest unit that it is whole in."""
    unit = max((unit for unit, each in _BYTES.items() if size % each == 0), key=_BYTES.__getitem__)
    return f"{size // _BYTES[unit]}{unit.replace('I', 'i')}"


def parse_size(text: str) -> int:
    """Return the bytes of a size: a whole number and none or one of KiB, MiB, GiB.

    Raises `typer.BadParameter` for anything else, and for 0.
    """
    match = _SIZE.fullmatch(text.strip().upper())
    size = int(match[1]) * _BYTES[match[2]] if match else 0
    if not size:
        raise typer.BadParameter(f"{text!r} is no size: write {SIZE_FORMS}.")
    return size


# Options of commands that follow from the fields of a dataclass, each of which carries type, default and
# help.
#
# A parameter `batch: Annotated[dict[str, Any], options_of(BatchOptions, "cascade", "guard")]` of a command
# stands for the options `--cascade` and `--guard`, and is given as a dict of the values of these fields
# (`runtime.cli.options`).


@dataclass(frozen=True)
class Declared:
    """Some of the fields of a dataclass, to be given on the command line."""

    of: type
    names: tuple[str, ...]

    def parameters(self) -> Iterator[inspect.Parameter]:
        """Yield a parameter for each field, in the order of the fields."""
        hints = get_type_hints(self.of)
        for field in fields(self.of):
            if field.name in self.names:
                hint, default = _typed(field, hints[field.name])
                yield inspect.Parameter(
                    field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint
                )


def options_of(of: type, *names: str) -> Declared:
    """Return what stands for some fields of a dataclass as options. Raises `TypeError` for what is no field."""
    unknown = set(names) - {field.name for field in fields(of)}
    if unknown:
        raise TypeError(f"{of.__name__} has no fields {unknown}.")
    return Declared(of, names)


def _typed(field: Field[Any], hint: Any) -> tuple[Any, Any]:  # noqa: ANN401 - types, and values of them
    """Return the annotation of an option as typer reads it, and its default."""
    more = dict(field.metadata)
    default: Any = field.default
    is_optional = NoneType in get_args(hint)
    kind = get_args(hint)[0] if is_optional else hint
    name, unit = more.pop("name", f"--{field.name.replace('_', '-')}"), more.pop("unit", None)
    if default is None:
        more.setdefault("show_default", False)
    if get_origin(kind) is Collection:
        kind, more["parser"] = str, _listed
    elif kind is timedelta:
        kind, more["parser"] = str, _duration
        default = duration_text(default // timedelta(microseconds=1))
    elif unit == "bytes":
        more["parser"], default = parse_size, size_text(default)
    return Annotated[kind | None if is_optional else kind, typer.Option(name, **more)], default


def _duration(text: str) -> timedelta:
    return timedelta(microseconds=parse_duration(text))


def _listed(text: str) -> list[str]:
    return [each.strip() for each in text.split(",")]


# Groups of options: a dataclass whose fields are options, or fields of one that declares more, is one
# parameter.

Command = Callable[..., None]


class _Option(NamedTuple):
    """An option as a parameter of a function, and in how many groups it is."""

    parameter: inspect.Parameter
    depth: int


def with_groups(command: Command) -> Command:
    """Return a command as typer reads it: an option in place of each field of its groups, which may hold groups.

    Arguments come first, then options that must be given; those of groups within groups come last.
    """
    hints = get_type_hints(command, include_extras=True)
    groups = {name: hint for name, hint in hints.items() if is_dataclass(hint) or _declared(hint)}
    if not groups:
        return command

    @functools.wraps(command)
    def flat(**given: Any) -> None:  # noqa: ANN401 - of any type, as options are
        command(**{name: _make(groups[name], given) for name in groups}, **given)

    options = list(_options(inspect.signature(command).parameters.values(), hints))
    options.sort(
        key=lambda option: (
            option.parameter.kind,
            option.parameter.default is not inspect.Parameter.empty,
            option.depth > 1,
        )
    )
    parameters = [option.parameter for option in options]
    flat.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined] # read by `inspect.signature`
    flat.__annotations__ = {each.name: each.annotation for each in parameters}
    return flat


def _options(
    parameters: Iterable[inspect.Parameter], hints: dict[str, Any], depth: int = 0
) -> Iterator[_Option]:
    for parameter in parameters:
        hint = hints[parameter.name]
        declared = _declared(hint)
        if declared is not None:
            yield from (_Option(each, depth) for each in declared.parameters())
        elif is_dataclass(hint):
            hints_of_group = get_type_hints(hint, include_extras=True)
            annotated = {
                each.name: _annotated(each, hints_of_group) for each in fields(hint) if each.metadata
            }
            found = map(_parameter, fields(hint))
            yield from _options(found, hints_of_group | annotated, depth + 1)
        else:
            yield _Option(parameter.replace(annotation=hint), depth)


def _parameter(field: Field[Any]) -> inspect.Parameter:
    default = inspect.Parameter.empty if field.default is MISSING else field.default
    if field.metadata.get("parse") == "duration" and isinstance(default, int):
        default = duration_text(default)  # parsed like what is typed
    return inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=default)


def _annotated(field: Field[Any], hints: dict[str, Any]) -> Any:  # noqa: ANN401 - a type
    """Return the option of a field that is declared by `option`, outside of the command line."""
    details = dict(field.metadata)
    parser = parse_duration if details.pop("parse", None) == "duration" else None
    name = f"--{field.name.replace('_', '-')}"
    return Annotated[hints[field.name], typer.Option(name, parser=parser, **details)]


def _make(group: Any, given: dict[str, Any]) -> Any:  # noqa: ANN401 - any dataclass
    """Take what a group has out of what was given."""
    declared = _declared(group)
    if declared is not None:
        return {name: given.pop(name) for name in declared.names}
    hints = get_type_hints(group, include_extras=True)
    values = {
        field.name: _make(hints[field.name], given)
        if is_dataclass(hints[field.name]) or _declared(hints[field.name])
        else given.pop(field.name)
        for field in fields(group)
    }
    return group(**values)


def _declared(hint: Any) -> Declared | None:  # noqa: ANN401 - any type
    """Return the fields that a parameter stands for, None when it is an option of its own."""
    return next((each for each in getattr(hint, "__metadata__", ()) if isinstance(each, Declared)), None)


STORE_VARIABLE = "CONSISTENT_STORE"
TABLE_VARIABLE = "CONSISTENT_TABLE"
DEFAULT_MASTER = "local[*,4]"


class LogFormat(StrEnum):
    """The formats of a message log."""

    PARQUET = "parquet"
    JSON = "json"


StoreUrl = Annotated[
    str,
    typer.Option(
        "--store",
        envvar=STORE_VARIABLE,
        metavar="URL",
        show_default=False,
        help="The store: sqlite:///FILE, azurite, https://ACCOUNT.table.core.windows.net, or env:NAME for a "
        "connection string in an environment variable.",
    ),
]
TableName = Annotated[
    str,
    typer.Option(
        "--table",
        envvar=TABLE_VARIABLE,
        metavar="NAME",
        show_default=False,
        help="The table of the store: 3 to 63 letters and digits.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of tables.")]
Master = Annotated[
    str,
    typer.Option(
        "--master",
        metavar="MASTER",
        help="Where Spark works: local[*,4] means all cores, and four attempts for each task.",
    ),
]
Remote = Annotated[
    str | None,
    typer.Option(
        "--remote",
        metavar="sc://HOST:PORT",
        show_default=False,
        help="Work on this server of Spark Connect, whatever --master says; needs the extra `connect`.",
    ),
]
OnSpark = Annotated[
    str | None,
    typer.Option(
        "--master",
        metavar="MASTER",
        show_default=False,
        help="Work on Spark there, by ranges of the table, as on local[*,4]; without it in this process alone.",
    ),
]
LogFile = Annotated[
    Path | None,
    typer.Option(
        "--log-file",
        metavar="FILE",
        dir_okay=False,
        show_default=".consistent/consistent.log",
        help="Takes what Spark prints, and traces of unexpected errors.",
    ),
]
Limit = Annotated[int, typer.Option("--limit", metavar="N", min=0, help="Show so many at most; 0 shows all.")]
AppSpec = Annotated[
    str,
    typer.Option(
        "--app",
        metavar="MODULE:ATTRIBUTE",
        show_default=False,
        help="The App with the handlers; its module may be in the working directory, which is searched last.",
    ),
]

Messages = Annotated[
    str,
    typer.Option(
        "--messages",
        metavar="LOG",
        show_default=False,
        help="The message log: a file or folder with the columns message_id, type, body, and optionally "
        "business_id, sequence, enqueued_at, headers, handler.",
    ),
]
Format = Annotated[
    LogFormat | None,
    typer.Option("--format", help="The log's format; by default what its name says, else Parquet."),
]
MaxLine = Annotated[
    int,
    typer.Option(
        "--max-line",
        parser=parse_size,
        metavar="SIZE",
        help="Refuse longer lines of a log as too_large; a note with size, digest and the first kilobyte is kept.",
    ),
]
MaxBody = Annotated[
    int,
    typer.Option(
        "--max-body",
        parser=parse_size,
        metavar="SIZE",
        help="Refuse messages with larger bodies as too_large.",
    ),
]
MaxHeaders = Annotated[
    int,
    typer.Option(
        "--max-headers",
        parser=parse_size,
        metavar="SIZE",
        help="Refuse messages with more bytes of headers, or in an id or a type, as too_large.",
    ),
]
MaxPublished = Annotated[
    int,
    typer.Option(
        "--max-published", metavar="N", help="Refuse a message for which a handler publishes more messages."
    ),
]
MaxPublishedBytes = Annotated[
    int,
    typer.Option(
        "--max-published-bytes",
        parser=parse_size,
        metavar="SIZE",
        help="Refuse a message for which a handler publishes more bytes of bodies and headers.",
    ),
]
MaxError = Annotated[
    int,
    typer.Option("--max-error", metavar="N", help="Cut the error of a dead letter to so many characters."),
]
MaxDepth = Annotated[
    int,
    typer.Option(
        "--max-depth", metavar="N", help="Refuse JSON that is nested deeper as too_large; 200 at most."
    ),
]


DeduplicationStoreUrl = Annotated[
    str | None,
    typer.Option(
        "--deduplication-store",
        metavar="URL",
        help="With --algorithm deduplication-store: the store of the ids, if it is not --store.",
    ),
]
DeduplicationTableName = Annotated[
    str | None,
    typer.Option(
        "--deduplication-table",
        metavar="NAME",
        help="With --algorithm deduplication-store: the table of the ids, if it is not --table.",
    ),
]
TokenStoreUrl = Annotated[
    str | None,
    typer.Option(
        "--token-store",
        metavar="URL",
        help="With --algorithm tokens: the store of the tokens, if it is not --store.",
    ),
]
TokenTableName = Annotated[
    str | None,
    typer.Option(
        "--token-table",
        metavar="NAME",
        help="With --algorithm tokens: the table of the tokens, if it is not --table.",
    ),
]


# The groups of options that several commands share.


@dataclass(frozen=True, kw_only=True)
class LogOptions:
    """Which message log is read, and how."""

    messages: Messages
    log_format: Format = None
    given: Annotated[dict[str, Any], options_of(BatchOptions, "source")]

    def check(self, master: str) -> int | None:
        """Return the size of the log in bytes, None where it is not on the disks of this machine.

        Raises `LogError` for what is no log, as far as that can be told without Spark, and `UsageError` for a source
        that cannot be.
        """
        from runtime.spark.logs.normalise import check_source

        check_source(self.given["source"] or "")
        return check_log(self.messages, master, None if self.log_format is None else self.log_format.value)

    def named(self) -> dict[str, Any]:
        """Return how it is read, as options of a batch or of a verification."""
        return {
            "log_format": None if self.log_format is None else self.log_format.value,
            **self.given,
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
        require_table(*states)
        with self.on_spark(step, stopped, states) as spark:
            from runtime.batch_options import TablePlace
            from runtime.spark.scan import scan

            scan(spark, TablePlace(*states), function, merge, prefix=prefix)

    @contextmanager
    def on_spark(self, step: str, stopped: str, *places: Place) -> Iterator[Session]:
        """Start Spark for one step. Raises `UsageError` where workers would not see the same stores."""
        from runtime.spark.worker.connection import check_scope

        master = self.place or ""
        for each in places:
            check_scope(connect(each.store).scope, master)
        with working(master, self.log_file, when_stopped=stopped) as (spark, progress):
            progress.step(step)
            yield spark
            progress.done()
