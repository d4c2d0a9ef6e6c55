"""Options: made from the fields of dataclasses, or declared here where the command line alone has them."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin, get_type_hints

import typer

from eventstore import KeyRange, Table, connect
from runtime.algorithms.choice import check_stores
from runtime.batch_options import TablePlace
from runtime.cli.checks import on_table, require_table
from runtime.cli.sessions import check_place, settings_for, working
from runtime.options import option

if TYPE_CHECKING:
    from runtime.cli.sessions import ShownSession
    from runtime.spark.session import Session

# Durations and sizes as people write them.

_MICROSECOND = timedelta(microseconds=1)
_MICROSECONDS_OF = {
    "s": 1_000_000,
    "m": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
    "w": 604_800_000_000,
}
_BYTES_OF = {"": 1, "B": 1, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}


def parse_duration(text: str) -> int:
    """Return the microseconds of a duration such as 30s, 15m, 24h, 7d or 2w. Raises `typer.BadParameter`."""
    match = re.fullmatch(r"([0-9]{1,9})([smhdw])", text.strip().lower())
    if match is None:
        raise typer.BadParameter(f"{text!r} is no duration: write 30s, 15m, 24h, 7d or 2w.")
    return int(match[1]) * _MICROSECONDS_OF[match[2]]


def parse_time(text: str) -> timedelta:
    """Return the same as a `timedelta`."""
    return parse_duration(text) * _MICROSECOND


def duration_text(microseconds: int) -> str:
    """Return a duration as `parse_duration` takes it, in the largest unit that it is whole in."""
    whole = (unit for unit, each in _MICROSECONDS_OF.items() if microseconds % each == 0)
    unit = max(whole, key=_MICROSECONDS_OF.__getitem__)
    return f"{microseconds // _MICROSECONDS_OF[unit]}{unit}"


def parse_size(text: str) -> int:
    """Return the bytes of a size such as 1000, 64KiB, 1MiB or 2GiB. Raises `typer.BadParameter`, also for 0."""
    match = re.fullmatch(r"([0-9]{1,15})\s*(|B|KIB|MIB|GIB)", text.strip().upper())
    size = int(match[1]) * _BYTES_OF[match[2]] if match else 0
    if not size:
        raise typer.BadParameter(f"{text!r} is no size: write 1000, 64KiB, 1MiB or 2GiB.")
    return size


def size_text(size: int) -> str:
    """Return a size as `parse_size` takes it, in the largest unit that it is whole in."""
    unit = max((unit for unit, each in _BYTES_OF.items() if size % each == 0), key=_BYTES_OF.__getitem__)
    return f"{size // _BYTES_OF[unit]}{unit.replace('I', 'i')}"


def _pair(text: str) -> tuple[str, str]:
    name, _, value = (part.strip() for part in text.partition("="))
    if not name or not value:
        raise typer.BadParameter("It is written NAME=VALUE.")  # not quoted: it may be a secret
    return name, value


# Options made from dataclasses. A parameter of a command that is a dataclass stands for an option for each field that
# `runtime.options.option` made, and for those of fields that are such dataclasses. The command is given an instance.


class Only(frozenset[str]):
    """The names of the fields of a dataclass that a command takes, in the annotation of its parameter; else all."""


def only(*names: str) -> Only:
    """Return what says so; the other fields are left at their defaults."""
    return Only(names)


@dataclass(frozen=True)
class _Group:
    """The options that a dataclass stands for."""

    of: type
    chosen: Only | None

    @classmethod
    def find(cls, hint: Any) -> _Group | None:  # noqa: ANN401 - any type
        """Return the group that a parameter or field of this type is, None for an option of its own."""
        kind = get_args(hint)[0] if get_origin(hint) is Annotated else hint
        if not is_dataclass(kind) or not isinstance(kind, type):
            return None
        return cls(kind, next((each for each in get_args(hint) if isinstance(each, Only)), None))

    def members(self) -> Iterator[tuple[Field[Any], Any, _Group | None]]:
        """Yield the fields that are options or groups of them, with their types."""
        hints = get_type_hints(self.of, include_extras=True)
        for each in fields(self.of):
            group = self.find(hints[each.name])
            if (group or each.metadata) and (self.chosen is None or each.name in self.chosen):
                yield each, hints[each.name], group

    def parameters(self) -> Iterator[inspect.Parameter]:
        """Yield a parameter for each option."""
        for each, hint, group in self.members():
            yield from [_parameter(each, hint)] if group is None else group.parameters()

    def make(self, given: dict[str, Any]) -> Any:  # noqa: ANN401 - an instance
        """Take the values of the options out of what was given, and return the instance."""
        values = {
            each.name: _take(each, hint, given) if group is None else group.make(given)
            for each, hint, group in self.members()
        }
        return self.of(**{name: value for name, value in values.items() if value is not _NOT_GIVEN})


_NOT_GIVEN = object()
_PARSERS = {"duration": (parse_duration, duration_text), "size": (parse_size, size_text)}


def _name(each: Field[Any]) -> str:
    """Return the name of a field as a parameter, which is that of the option: two classes may have the same field."""
    return str(each.metadata.get("name", each.name)).lstrip("-").replace("-", "_")


def _kind(hint: Any) -> Any:  # noqa: ANN401 - types
    """Return the type without None."""
    kinds = [each for each in get_args(hint) if each is not NoneType]
    return kinds[0] if len(kinds) < len(get_args(hint)) else hint


def _parameter(each: Field[Any], hint: Any) -> inspect.Parameter:  # noqa: ANN401 - a type
    """Return a field as a parameter with the annotation that typer reads."""
    more = dict(each.metadata)
    name = more.pop("name", f"--{each.name.rstrip('_').replace('_', '-')}")
    kind, default, is_optional = _kind(hint), each.default, _kind(hint) is not hint
    if default in (MISSING, None, ""):
        more.setdefault("show_default", False)
    if "parse" in more:
        more["parser"], text = _PARSERS[more.pop("parse")]
        default = text(default) if isinstance(default, int) else default
    elif kind is timedelta:
        more["parser"] = parse_time
        default = duration_text(default // _MICROSECOND) if isinstance(default, timedelta) else default
    elif get_origin(kind) in (Mapping, Collection, Sequence):
        more["parser"] = _pair if get_origin(kind) is Mapping else str
        kind, default, is_optional = list[str], None, True
    annotation: Any = Annotated[kind | None if is_optional else kind, typer.Option(name, **more)]
    empty = inspect.Parameter.empty if default is MISSING else default
    return inspect.Parameter(
        _name(each), inspect.Parameter.KEYWORD_ONLY, default=empty, annotation=annotation
    )


def _take(each: Field[Any], hint: Any, given: dict[str, Any]) -> Any:  # noqa: ANN401 - of any option
    """Take the value of a field: of an option that may be repeated, the mapping, or the names between commas."""
    value, kind = given.pop(_name(each)), get_origin(_kind(hint))
    if kind not in (Mapping, Collection, Sequence):
        return value
    if not value:
        return _NOT_GIVEN
    return dict(value) if kind is Mapping else [name.strip() for names in value for name in names.split(",")]


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command as typer reads it, with an option for each field of the dataclasses that it takes.

    A parameter of its own may have what `option` makes as default. Arguments come first, then options that must be
    given.
    """
    hints = get_type_hints(command, include_extras=True)
    takers: dict[str, Callable[[dict[str, Any]], Any]] = {}
    parameters: list[inspect.Parameter] = []
    for name, each in inspect.signature(command).parameters.items():
        group, own = _Group.find(hints[name]), each.default
        if group is not None:
            takers[name] = group.make
            parameters += group.parameters()
        elif isinstance(own, Field):
            own.name = name
            takers[name] = partial(_take, own, hints[name])
            parameters.append(_parameter(own, hints[name]))
        else:
            parameters.append(each.replace(annotation=hints[name]))

    @functools.wraps(command)
    def flat(**given: Any) -> None:  # noqa: ANN401 - of any type, as options are
        command(**{name: take(given) for name, take in takers.items()}, **given)

    parameters.sort(key=lambda each: (each.kind, each.default is not inspect.Parameter.empty))
    flat.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined] # read by `inspect.signature`
    flat.__annotations__ = {each.name: each.annotation for each in parameters}
    return flat


# Options that the command line alone has, and several commands share.

DEFAULT_MASTER = "local[*,4]"

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of tables.")]
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


@dataclass(frozen=True)
class OtherStores:
    """Where the de-duplication store and the token store are, as far as it is said."""

    deduplication_store: str | None = option(
        "With --algorithm deduplication-store: the store of the ids, if it is not --store.",
        default=None,
        metavar="URL",
    )
    deduplication_table: str | None = option(
        "With --algorithm deduplication-store: the table of the ids, if it is not --table.",
        default=None,
        metavar="NAME",
    )
    token_store: str | None = option(
        "With --algorithm tokens: the store of the tokens, if it is not --store.", default=None, metavar="URL"
    )
    token_table: str | None = option(
        "With --algorithm tokens: the table of the tokens, if it is not --table.",
        default=None,
        metavar="NAME",
    )

    def ids(self, states: TablePlace) -> TablePlace:
        """Return the table of the ids; what is not said is as for the states."""
        return TablePlace(self.deduplication_store or states.store, self.deduplication_table or states.table)

    def tokens(self, states: TablePlace) -> TablePlace:
        """Return the table of the tokens; what is not said is as for the states."""
        return TablePlace(self.token_store or states.store, self.token_table or states.table)

    def check(self, algorithm: str) -> None:
        """Raise `UsageError` for a store that the algorithm does not use."""
        ids = self.deduplication_store or self.deduplication_table
        check_stores(
            algorithm, deduplication_store=ids or None, token_store=self.token_store or self.token_table
        )


@dataclass(frozen=True)
class SparkOptions:
    """Where Spark works, and what takes its log."""

    master: str | None = option(
        "Where Spark works: local[*,4] means all cores, and four attempts for each task.",
        default=DEFAULT_MASTER,
        metavar="MASTER",
    )
    remote: str | None = option(
        "Work on this server of Spark Connect, whatever --master says; needs the extra `connect`.",
        default=None,
        metavar="sc://HOST:PORT",
    )
    log_file: Path | None = option(
        "Takes what Spark prints, and traces of unexpected errors.",
        default=None,
        metavar="FILE",
        dir_okay=False,
        show_default=".consistent/consistent.log",
    )

    def __post_init__(self) -> None:
        check_place(self.master, self.remote)  # what cannot be is refused

    @property
    def place(self) -> str:
        """Where Spark works: a master, or the url of a server of Spark Connect; empty for this process."""
        return self.remote or self.master or ""

    def check_scope(self, *places: TablePlace) -> None:
        """Raise `UsageError` where workers would not see the same stores as this process."""
        from runtime.spark.worker.connection import check_scope

        for each in places:
            check_scope(connect(each.store).scope, self.place)

    def working(
        self, when_stopped: str, log_bytes: int | None = None
    ) -> AbstractContextManager[ShownSession]:
        """Start Spark, and yield the session and the progress to report steps to; see `sessions.working`.

        `log_bytes` is the size of the log that it is to read, where that is known.
        """
        return working(self.place, self.log_file, when_stopped=when_stopped, settings=settings_for(log_bytes))


@dataclass(frozen=True)
class ScanOptions(SparkOptions):
    """Where a table is worked on: in this process, or range by range on the workers of Spark."""

    master: str | None = option(
        "Work on Spark there, by parts, as on local[*,4]; without it in this process alone.",
        default=None,
        metavar="MASTER",
    )

    def scan(
        self,
        states: TablePlace,
        function: Callable[[Table, KeyRange], Coroutine[Any, Any, Any]],
        merge: Callable[[Any], object],
        *,
        step: str,
        stopped: str = "Stopped. Nothing was written.",
        prefix: str = "",
    ) -> None:
        """Call an async function with a table and its keys that have a prefix, or with ranges of them on Spark.

        Each result is merged as the value that its `document()` returns. `step` says what is being done, and `stopped`
        what remains after Ctrl-C.
        """
        if not self.place:
            merge(on_table(states, lambda opened: function(opened, KeyRange(prefix))).document())
            return
        require_table(states)
        with self.on_spark(step, stopped, states) as spark:
            from runtime.spark.scan import scan

            scan(spark, states, function, merge, prefix=prefix)

    @contextmanager
    def on_spark(self, step: str, stopped: str, *places: TablePlace) -> Iterator[Session]:
        """Start Spark for one step. Raises `UsageError` where workers would not see the same stores."""
        self.check_scope(*places)
        with working(self.place, self.log_file, when_stopped=stopped) as (spark, progress):
            progress.step(step)
            yield spark
            progress.done()
