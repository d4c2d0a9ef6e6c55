"""Turns dataclass fields into options of typer, and declares the options that only the command line has."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from copy import copy
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, get_args, get_origin, get_type_hints

import typer

from eventstore import KeyRange, Table, connect
from runtime.batch_options import TablePlace
from runtime.cli.checks import on_table, require_table
from runtime.cli.sessions import check_place, settings_for, working
from runtime.errors import UsageError
from runtime.options import OWN_DETAILS, REQUIRED, option

if TYPE_CHECKING:
    from runtime.cli.sessions import ShownSession
    from runtime.spark.session import Session

_MICROSECOND = timedelta(microseconds=1)
_SECONDS_OF = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_MICROSECONDS_OF = {unit: seconds * 10**6 for unit, seconds in _SECONDS_OF.items()}
_BYTES_OF = {"": 1, "B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


def parse_duration(text: str) -> int:
    """Parse a duration such as 30s, 15m or 2w to microseconds. Raises `typer.BadParameter` for any other text."""
    match = re.fullmatch(r"([0-9]{1,9})([smhdw])", text.strip().lower())
    if match is None:
        raise typer.BadParameter(f"{text!r} is not a duration: use a form such as 30s, 15m, 24h, 7d or 2w.")
    return int(match[1]) * _MICROSECONDS_OF[match[2]]


def parse_time(text: str) -> timedelta:
    """Parse a duration into a `timedelta`. Raises `typer.BadParameter` if the duration is invalid or too long."""
    try:
        return parse_duration(text) * _MICROSECOND
    except OverflowError:
        raise typer.BadParameter(f"{text!r} is too long a duration.") from None


def parse_size(text: str) -> int:
    """Parse a size such as 1000, 64KiB or 2GiB into a number of bytes. Raises `typer.BadParameter` if invalid or 0."""
    match = re.fullmatch(r"([0-9]{1,15})\s*(|B|KIB|MIB|GIB)", text.strip().upper())
    size = int(match[1]) * _BYTES_OF[match[2].replace("I", "i")] if match else 0
    if not size:
        raise typer.BadParameter(f"{text!r} is not a size: use a form such as 1000, 64KiB, 1MiB or 2GiB.")
    return size


def _in_largest(units: Mapping[str, int], number: int) -> str:
    unit = max((unit for unit, each in units.items() if number % each == 0), key=units.__getitem__)
    return f"{number // units[unit]}{unit}"


duration_text, size_text = partial(_in_largest, _MICROSECONDS_OF), partial(_in_largest, _BYTES_OF)


def _pair(text: str) -> tuple[str, str]:
    name, _, value = (part.strip() for part in text.partition("="))
    if not name or not value:
        raise typer.BadParameter("Use the form NAME=VALUE.")  # without the text, which may be a secret
    return name, value


# A dataclass parameter of a command stands for an option for each field declared by `runtime.options.option`, and for
# those of nested dataclasses. The command receives an instance.


def only(*names: str) -> frozenset[str]:
    """Return an annotation that limits a dataclass parameter to the named fields. Other fields keep their defaults."""
    return frozenset(names)


_NOT_GIVEN = object()
_PARSERS = {"duration": (parse_duration, duration_text), "size": (parse_size, size_text)}


def _keyword(name: str, default: object, annotation: object) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


@dataclass(frozen=True)
class Declared:
    """A dataclass field as an option: on the command line, in the environment and, with a group, in a project file."""

    field: Field[Any]
    hint: Any
    group: str | None

    @property
    def key(self) -> str:
        """The option's name in the project file. On the command line, `--` precedes the name."""
        own = self.field.name.rstrip("_").replace("_", "-")
        return str(self.field.metadata.get("name", own)).removeprefix("--")

    @property
    def name(self) -> str:
        """The parameter's name: the explicit name of the option, if there is one, otherwise the name of the field."""
        return self.key.replace("-", "_") if "name" in self.field.metadata else self.field.name

    @property
    def kind(self) -> Any:  # noqa: ANN401 - types
        """The type of the field, without `None`."""
        kinds = [each for each in get_args(self.hint) if each is not NoneType]
        return kinds[0] if len(kinds) < len(get_args(self.hint)) else self.hint

    @property
    def is_many(self) -> bool:
        """Whether the option may be repeated."""
        return get_origin(self.kind) in (Mapping, Collection, Sequence)

    @property
    def is_rare(self) -> bool:
        """Whether only `--help-all` lists the option. True by default for options with a group."""
        is_required = self.field.default is self.field.default_factory is MISSING
        return bool(self.field.metadata.get("is_rare", self.group and not is_required))

    @property
    def variable(self) -> str | None:
        """The name of the option's environment variable, if any."""
        of_key = "_".join(filter(None, ("CONSISTENT", self.group, self.name))).upper()
        is_none = self.group is None or of_key == OF_EVENTS
        named: str | None = self.field.metadata.get("envvar", None if is_none else of_key)
        return named

    def parameter(self) -> inspect.Parameter:
        """Return the parameter of the command's signature, annotated for typer."""
        more = {each: value for each, value in self.field.metadata.items() if each not in OWN_DETAILS}
        kind, default, is_optional = self.kind, self.field.default, self.kind is not self.hint
        more.setdefault("show_envvar", "envvar" in more)
        if kind in (int, float):
            more.setdefault("metavar", "N")
        more["envvar"] = self.variable
        if default is None and not is_optional:
            raise TypeError(f"The option {self.key} needs a default, or REQUIRED.")
        if default in (MISSING, None, "") or kind is bool:
            more.setdefault("show_default", False)
        if "parse" in self.field.metadata:
            more["parser"], text = _PARSERS[self.field.metadata["parse"]]
            default = text(default) if isinstance(default, int) else default
        elif kind is timedelta:
            more["parser"] = parse_time
            default = duration_text(default // _MICROSECOND) if isinstance(default, timedelta) else default
        elif self.is_many:
            more["parser"] = _pair if get_origin(kind) is Mapping else str
            kind, default, is_optional = list[str], None, True
        # --no-KEY overrides a flag that the project file sets.
        names = f"--{self.key}" + f"/--no-{self.key}" * (kind is bool and self.group is not None)
        annotation: Any = Annotated[kind | None if is_optional else kind, typer.Option(names, **more)]
        default = inspect.Parameter.empty if default is MISSING else default
        return _keyword(self.name, default, annotation)

    def take(self, given: dict[str, Any]) -> Any:  # noqa: ANN401 - of any option
        """Remove the option's value from `given`, and return the value for the field.

        For a repeatable option, this is a mapping, a list split at commas or, without values, `_NOT_GIVEN`.
        """
        value = given.pop(self.name)
        if not self.is_many:
            return value
        if not value:
            return _NOT_GIVEN
        is_mapping = get_origin(self.kind) is Mapping
        return dict(value) if is_mapping else [name.strip() for names in value for name in names.split(",")]


@functools.cache
def _hints(of: type) -> dict[str, Any]:
    return get_type_hints(of, include_extras=True)


@dataclass(frozen=True)
class _Group:
    of: type
    chosen: frozenset[str] | None

    @classmethod
    def find(cls, hint: Any) -> _Group | None:  # noqa: ANN401 - any type
        """Return the group for a parameter or field of this type, or `None` if the type is not a dataclass."""
        kind = get_args(hint)[0] if get_origin(hint) is Annotated else hint
        if not is_dataclass(kind) or not isinstance(kind, type):
            return None
        return cls(kind, next((each for each in get_args(hint) if isinstance(each, frozenset)), None))

    def members(self) -> Iterator[tuple[str, Declared | _Group]]:
        """Yield the name of each field with its option or nested group."""
        hints = _hints(self.of)
        for each in fields(self.of):
            group = self.find(hints[each.name])
            if (group or each.metadata) and (self.chosen is None or each.name in self.chosen):
                table = each.metadata.get("group", getattr(self.of, "GROUP", None))
                yield each.name, group or Declared(each, hints[each.name], table)

    def options(self) -> Iterator[Declared]:
        """Yield all options of the group and its nested groups."""
        for _, each in self.members():
            yield from [each] if isinstance(each, Declared) else each.options()

    def take(self, given: dict[str, Any]) -> Any:  # noqa: ANN401 - an instance
        """Remove the values of the options from `given`, and return the dataclass with these values."""
        values = {name: each.take(given) for name, each in self.members()}
        return self.of(**{name: value for name, value in values.items() if value is not _NOT_GIVEN})


CHOSEN = "CONSISTENT_ENV"
OF_EVENTS = "CONSISTENT_LOG_FORMAT"  # of `runtime.telemetry`, so the key `format` of [log] has no variable
SHOW_ALL = "consistent.help-all"  # key in the `meta` of the context: the help shows all options


def _show_all(ctx: typer.Context, is_asked: bool) -> None:
    if is_asked:
        ctx.meta[SHOW_ALL] = True
        print(ctx.get_help())
        raise typer.Exit


def of_environment() -> Any:  # noqa: ANN401 - a field
    """Return the option that selects an environment of the project file."""
    text = "Prefer the values of this environment in the project file."
    chosen = option(text, name="--env", envvar=CHOSEN, metavar="NAME")
    chosen.name = "env"
    return chosen


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command whose dataclass parameters are replaced by an option for each field.

    Other parameters may have an `option` as default or in their annotation. Arguments come first, then required
    options. The attribute `declared` of the result maps parameter names to options.
    """
    hints = get_type_hints(command, include_extras=True)
    takers: dict[str, Callable[[dict[str, Any]], Any]] = {}
    parameters: list[inspect.Parameter] = []
    declared: dict[str, Declared] = {}
    for name, each in inspect.signature(command).parameters.items():
        hint: Any = hints[name]
        own = next((one for one in (each.default, *get_args(hint)) if isinstance(one, Field)), None)
        entry: Declared | _Group | None = _Group.find(hint)
        if own is not None:
            own = copy(own)
            own.name = name
            if not isinstance(each.default, Field) and each.default is not inspect.Parameter.empty:
                own.default = each.default
            kind = get_args(hint)[0] if get_origin(hint) is Annotated else hint
            entry = Declared(own, kind, own.metadata.get("group"))
        if entry is None:
            parameters.append(each.replace(annotation=hint))
            continue
        takers[name] = entry.take
        options = [entry] if isinstance(entry, Declared) else list(entry.options())
        parameters += [one.parameter() for one in options]
        declared |= {one.name: one for one in options}
    if "env" not in declared and any(each.group is not None for each in declared.values()):
        parameters.append(Declared(of_environment(), str | None, None).parameter())
    rare = sum(each.is_rare for each in declared.values())
    if rare:
        text = f"Show all options, including {rare} rare ones, and exit."
        info = typer.Option("--help-all", is_eager=True, callback=_show_all, help=text, show_default=False)
        parameters.append(_keyword("help_all", default=False, annotation=Annotated[bool, info]))

    @functools.wraps(command)
    def flat(**given: Any) -> None:  # noqa: ANN401 - of any type, as options are
        values = {name: take(given) for name, take in takers.items()}
        command(**values, **{name: value for name, value in given.items() if name in hints})

    parameters.sort(key=lambda each: (each.kind, each.default is not inspect.Parameter.empty))
    flat.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined] # read by `inspect.signature`
    flat.__annotations__ = {each.name: each.annotation for each in parameters}
    flat.declared = declared  # type: ignore[attr-defined]
    return flat


DEFAULT_MASTER = "local[*,4]"
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of tables.")]
Limit = Annotated[int, typer.Option("--limit", metavar="N", min=0, help="Show at most N; 0 shows all.")]


def argument(metavar: str, text: str) -> Any:  # noqa: ANN401 - of typer
    """Return the annotation of a positional argument, for typer."""
    return typer.Argument(metavar=metavar, show_default=False, help=text)


def _check_app(spec: str) -> None:
    if not all(spec.partition(":")):
        raise UsageError("it must be MODULE:ATTRIBUTE")


AppSpec = Annotated[
    str,
    option(
        "The App with the handlers. The working directory is searched last for its module.",
        default=REQUIRED,
        metavar="MODULE:ATTRIBUTE",
        group="",
        check=_check_app,
    ),
]
Messages = Annotated[
    str,
    option(
        "The message log: a file or folder with the columns message_id, type, body, and optionally business_id, "
        "sequence, enqueued_at, headers, handler; or kafka://HOST:PORT/TOPIC?from=X&to=Y, or env:NAME.",
        default=REQUIRED,
        is_secret=True,
        metavar="LOG",
        group="log",
        is_rare=False,
    ),
]


WITH_OTHER_TABLE = ("deduplication-store", "tokens")  # the algorithms that may have another table


@dataclass(frozen=True)
class AuxiliaryStore:
    """The table of message ids or tokens, for the algorithms that may use an auxiliary table."""

    GROUP: ClassVar[str | None] = "stores"

    auxiliary_store: str | None = option(
        "With --algorithm deduplication-store or tokens: the store of message ids or tokens. Default: --store.",
        metavar="URL",
    )
    auxiliary_table: str | None = option(
        "With --algorithm deduplication-store or tokens: their table. Default: --table.", metavar="NAME"
    )

    def place(self, states: TablePlace) -> TablePlace:
        """Return the location of ids or tokens. An omitted store or table name defaults to that of the states."""
        return TablePlace(self.auxiliary_store or states.store, self.auxiliary_table or states.table)

    def check(self, algorithm: str) -> None:
        """Raise `UsageError` if an auxiliary table is given, but the algorithm uses none."""
        if self != AuxiliaryStore() and algorithm not in WITH_OTHER_TABLE:
            raise UsageError(
                f"Only the algorithms deduplication-store and tokens have an auxiliary store: omit it with {algorithm}."
            )


@dataclass(frozen=True)
class SparkOptions:
    """Where Spark runs, and its log file."""

    GROUP: ClassVar[str | None] = "spark"

    master: str | None = option(
        "The Spark master: local[*,4] means all cores, and four attempts for each task.",
        default=DEFAULT_MASTER,
        metavar="MASTER",
        check=check_place,
    )
    remote: str | None = option(
        "A Spark Connect server to use instead of --master.",
        is_rare=True,
        metavar="sc://HOST:PORT",
        check=partial(check_place, None),
    )
    log_file: Path | None = option(
        "The file for Spark's output, and for tracebacks of unexpected errors.",
        dir_okay=False,
        show_default=".consistent/consistent.log",
        is_rare=True,
    )
    settings: Mapping[str, str] = option(
        "A Spark setting, such as spark.driver.memory=4g. May be repeated.",
        default=dict,
        is_rare=True,
        metavar="NAME=VALUE",
    )

    def __post_init__(self) -> None:
        check_place(self.master, self.remote)
        if self.settings and not self.master:
            raise UsageError("--settings apply when Spark is started: add --master.")
        if self.settings and self.remote:
            raise UsageError(
                f"--settings cannot be applied to the running server {self.remote}: set them there."
            )
        if not self.settings.keys().isdisjoint({"spark.master", "spark.remote"}):
            raise UsageError("Use --master and --remote, not spark.master and spark.remote in --settings.")

    @property
    def place(self) -> str:
        """The Spark master or the URL of Spark Connect, or an empty string for this process."""
        return self.remote or self.master or ""

    def check_scope(self, *places: TablePlace) -> None:
        """Raise `UsageError` if workers cannot access a store. A cluster cannot access a local SQLite file."""
        from runtime.spark.worker.connection import check_scope

        for each in places:
            check_scope(connect(each.store).scope, self.place)

    def working(self, stopped: str, log_bytes: int | None = None) -> AbstractContextManager[ShownSession]:
        """Context manager that starts Spark and yields session and progress; see `sessions.working`.

        `stopped` is printed after Ctrl-C. `log_bytes`: the size of the log, if known. Raises `UsageError` if --settings
        has a setting that batches set themselves.
        """
        if self.settings:
            from runtime.spark.session import SETTINGS

            taken = sorted(SETTINGS.keys() & self.settings)
            if taken:
                raise UsageError(f"Batches set {taken[0]} themselves: remove it from --settings.")
        settings = {**settings_for(log_bytes), **self.settings}
        return working(self.place, self.log_file, when_stopped=stopped, settings=settings)


@dataclass(frozen=True)
class ScanOptions(SparkOptions):
    """Options to scan a table in this process, or in key ranges on Spark.

    They are not in the project file, because scanning a table of ordinary size is faster than starting Spark.
    """

    GROUP: ClassVar[str | None] = None

    master: str | None = option(
        "A Spark master, such as local[*,4], to scan the table in parallel. Default: this process.",
        metavar="MASTER",
        is_rare=True,
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
        """Call an async function with the table and its whole key range or, on Spark, once for each of several ranges.

        Passes the `document()` of each result to `merge`. `step` describes the work. `stopped` is printed after Ctrl-C.
        With `prefix`, only partition keys with this prefix are scanned.
        """
        if not self.place:
            merge(on_table(states, lambda opened: function(opened, KeyRange(prefix))).document())
            return
        states = require_table(states)
        with self.on_spark(step, stopped, states) as spark:
            from runtime.spark.scan import scan

            scan(spark, states, function, merge, prefix=prefix)

    @contextmanager
    def on_spark(self, step: str, stopped: str, *places: TablePlace) -> Iterator[Session]:
        """Context manager that starts Spark for one step, and yields the session. `stopped` is printed after Ctrl-C.

        Raises `UsageError` if workers cannot access the stores of `places`.
        """
        self.check_scope(*places)
        with self.working(stopped) as (spark, progress):
            progress.step(step)
            yield spark
            progress.done()
