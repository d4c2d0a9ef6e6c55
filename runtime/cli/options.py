"""Options: made from the fields of dataclasses, or declared here where the command line alone has them."""

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
from runtime.algorithms.choice import check_stores
from runtime.batch_options import TablePlace
from runtime.cli.checks import on_table, require_table
from runtime.cli.sessions import check_place, settings_for, working
from runtime.errors import UsageError
from runtime.options import OWN_DETAILS, option

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


_NOT_GIVEN = object()
_PARSERS = {"duration": (parse_duration, duration_text), "size": (parse_size, size_text)}


def _keyword(name: str, default: object, annotation: object) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


@dataclass(frozen=True)
class Declared:
    """A field as an option of the command line and the environment, and, in its group, of the project file."""

    field: Field[Any]
    hint: Any
    group: str | None

    @property
    def key(self) -> str:
        """The name in the project file, and without its hyphens on the command line."""
        own = self.field.name.rstrip("_").replace("_", "-")
        return str(self.field.metadata.get("name", own)).removeprefix("--")

    @property
    def name(self) -> str:
        """The name as a parameter, which is that of the option: two classes may have the same field."""
        return self.key.replace("-", "_") if "name" in self.field.metadata else self.field.name

    @property
    def kind(self) -> Any:  # noqa: ANN401 - types
        """The type without None."""
        kinds = [each for each in get_args(self.hint) if each is not NoneType]
        return kinds[0] if len(kinds) < len(get_args(self.hint)) else self.hint

    @property
    def is_many(self) -> bool:
        """Whether the option may be repeated."""
        return get_origin(self.kind) in (Mapping, Collection, Sequence)

    @property
    def is_rare(self) -> bool:
        """Whether the option is left to `--help-all`: by default one of a group of its own."""
        is_required = self.field.default is self.field.default_factory is MISSING
        return bool(self.field.metadata.get("is_rare", self.group and not is_required))

    @property
    def variable(self) -> str | None:
        """The environment variable."""
        of_key = "_".join(filter(None, ("CONSISTENT", self.group, self.name))).upper()
        named: str | None = self.field.metadata.get("envvar", None if self.group is None else of_key)
        return named

    def parameter(self) -> inspect.Parameter:
        """Return the parameter with the annotation that typer reads."""
        more = {each: value for each, value in self.field.metadata.items() if each not in OWN_DETAILS}
        kind, default, is_optional = self.kind, self.field.default, self.kind is not self.hint
        more.setdefault("show_envvar", "envvar" in more)
        more["envvar"] = self.variable
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
        # A flag that the project file may set can be unset by a word.
        names = f"--{self.key}" + f"/--no-{self.key}" * (kind is bool and self.group is not None)
        annotation: Any = Annotated[kind | None if is_optional else kind, typer.Option(names, **more)]
        default = inspect.Parameter.empty if default is MISSING else default
        return _keyword(self.name, default, annotation)

    def take(self, given: dict[str, Any]) -> Any:  # noqa: ANN401 - of any option
        """Take the value of the field: of one that may be repeated, the mapping, or the names between commas."""
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

    def members(self) -> Iterator[tuple[str, Declared | _Group]]:
        """Yield the names of the fields that are options, or groups of them, and these."""
        hints = _hints(self.of)
        for each in fields(self.of):
            group = self.find(hints[each.name])
            if (group or each.metadata) and (self.chosen is None or each.name in self.chosen):
                table = each.metadata.get("group", getattr(self.of, "GROUP", None))
                yield each.name, group or Declared(each, hints[each.name], table)

    def options(self) -> Iterator[Declared]:
        """Yield each option."""
        for _, each in self.members():
            yield from [each] if isinstance(each, Declared) else each.options()

    def take(self, given: dict[str, Any]) -> Any:  # noqa: ANN401 - an instance
        """Take the values of the options out of what was given, and return the instance."""
        values = {name: each.take(given) for name, each in self.members()}
        return self.of(**{name: value for name, value in values.items() if value is not _NOT_GIVEN})


CHOSEN = "CONSISTENT_ENV"
SHOW_ALL = "consistent.help-all"
"""Is in the `meta` of the context of a command whose help is to show all options."""


def _show_all(ctx: typer.Context, is_asked: bool) -> None:
    if is_asked:
        ctx.meta[SHOW_ALL] = True
        print(ctx.get_help())
        raise typer.Exit


def of_environment() -> Any:  # noqa: ANN401 - a field
    """Return the option that chooses an environment of the project file."""
    text = "Take the values of this environment of the project file before the others."
    chosen = option(text, default=None, name="--env", envvar=CHOSEN, metavar="NAME")
    chosen.name = "env"
    return chosen


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command as typer reads it, with an option for each field of the dataclasses that it takes.

    A parameter of its own may have what `option` makes as default, or in its annotation. Arguments come first, then
    options that must be given. What is returned has the options by the names of their parameters, as `declared`.
    """
    hints = get_type_hints(command, include_extras=True)
    takers: dict[str, Callable[[dict[str, Any]], Any]] = {}
    parameters: list[inspect.Parameter] = []
    declared: dict[str, Declared] = {}
    for name, each in inspect.signature(command).parameters.items():
        hint: Any = hints[name]
        own = next((one for one in (each.default, *get_args(hint)) if isinstance(one, Field)), None)
        found: Declared | _Group | None = _Group.find(hint)
        if own is not None:
            own = copy(own)
            own.name = name
            if not isinstance(each.default, Field) and each.default is not inspect.Parameter.empty:
                own.default = each.default
            kind = get_args(hint)[0] if get_origin(hint) is Annotated else hint
            found = Declared(own, kind, own.metadata.get("group"))
        if found is None:
            parameters.append(each.replace(annotation=hint))
            continue
        takers[name] = found.take
        options = [found] if isinstance(found, Declared) else list(found.options())
        parameters += [one.parameter() for one in options]
        declared |= {one.name: one for one in options}
    if any(each.group is not None for each in declared.values()):
        parameters.append(Declared(of_environment(), str | None, None).parameter())
    rare = sum(each.is_rare for each in declared.values())
    if rare:
        text = f"Show all options, with the {rare} that are seldom needed, and exit."
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


# Options that the command line alone has, and several commands share.

DEFAULT_MASTER = "local[*,4]"

Yes = Annotated[
    bool, typer.Option("--yes", help="Do not ask whether it is to be done, as it cannot be undone.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of tables.")]
Limit = Annotated[int, typer.Option("--limit", metavar="N", min=0, help="Show so many at most; 0 shows all.")]


def _check_app(spec: str) -> None:
    if not all(spec.partition(":")):
        raise UsageError("it is MODULE:ATTRIBUTE")


AppSpec = Annotated[
    str,
    option(
        "The App with the handlers; its module may be in the working directory, which is searched last.",
        metavar="MODULE:ATTRIBUTE",
        group="",
        check=_check_app,
    ),
]
Messages = Annotated[
    str,
    option(
        "The message log: a file or folder with the columns message_id, type, body, and optionally business_id, "
        "sequence, enqueued_at, headers, handler.",
        metavar="LOG",
        group="log",
        is_rare=False,
    ),
]


@dataclass(frozen=True)
class AuxiliaryStores:
    """Where the de-duplication store and the token store are, as far as it is said."""

    GROUP: ClassVar[str | None] = "stores"

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

    GROUP: ClassVar[str | None] = "spark"

    master: str | None = option(
        "Where Spark works: local[*,4] means all cores, and four attempts for each task.",
        default=DEFAULT_MASTER,
        metavar="MASTER",
        check=check_place,
    )
    remote: str | None = option(
        "Work on this server of Spark Connect, whatever --master says; needs the extra `connect`.",
        default=None,
        is_rare=True,
        metavar="sc://HOST:PORT",
        check=partial(check_place, None),
    )
    log_file: Path | None = option(
        "Takes what Spark prints, and traces of unexpected errors.",
        default=None,
        metavar="FILE",
        dir_okay=False,
        show_default=".consistent/consistent.log",
        is_rare=True,
    )

    settings: Mapping[str, str] = option(
        "Start Spark with a setting of its own, such as spark.driver.memory=4g; may be repeated.",
        default=dict,
        is_rare=True,
        metavar="NAME=VALUE",
    )

    def __post_init__(self) -> None:
        check_place(self.master, self.remote)  # what cannot be is refused
        if self.settings and not self.master:
            raise UsageError("--settings are those of a Spark that is started: say with --master where.")
        if self.settings and self.remote:
            raise UsageError(
                f"--settings cannot be applied to {self.remote}, which runs already: set them there instead."
            )
        if "spark.master" in self.settings or "spark.remote" in self.settings:
            raise UsageError("Where Spark works is said by --master or --remote, and not by --settings.")

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
        if self.settings:
            from runtime.spark.session import SETTINGS

            taken = sorted(SETTINGS.keys() & self.settings)
            if taken:
                raise UsageError(f"A batch sets {taken[0]} itself: leave it out of --settings.")
        settings = {**settings_for(log_bytes), **self.settings}
        return working(self.place, self.log_file, when_stopped=when_stopped, settings=settings)


@dataclass(frozen=True)
class ScanOptions(SparkOptions):
    """Where a table is worked on: in this process, or range by range on the workers of Spark.

    The project file says nothing of it: a table of usual size takes less time here than Spark to start.
    """

    GROUP: ClassVar[str | None] = None

    master: str | None = option(
        "Work on Spark there, by parts, as on local[*,4]; without it in this process alone.",
        default=None,
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
        with self.working(stopped) as (spark, progress):
            progress.step(step)
            yield spark
            progress.done()
