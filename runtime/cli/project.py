"""The project file: defaults of options in `consistent.toml`, or in `[tool.consistent]` of pyproject.toml.

The file is searched from the working directory upwards. Its keys are the options with a group. Command line and
environment variables take precedence; a selected environment, `[env.NAME]`, overrides the rest of the file.
"""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, get_origin

import typer
from typer.core import TyperCommand

from eventstore import EventStoreError
from runtime.cli.console import Screen
from runtime.cli.options import CHOSEN, SHOW_ALL
from runtime.errors import UsageError
from runtime.options import is_secret

if TYPE_CHECKING:
    from runtime.cli.options import Declared

FILE, PYPROJECT, ROOT = "consistent.toml", "pyproject.toml", ("tool", "consistent")
TARGETS = "publish"  # the group with a table for each named target

PATHS = ("DIR", "FILE", "LOG", "URL")  # the metavars of options that may be relative paths

Names = tuple[str, ...]  # the path of an entry: tables and key
Key = tuple[str, str]  # group, empty for the top level, and name
# The options of the file, each with the typer parameter that validates its value.
Schema = Mapping[Key, tuple["Declared", Any]]


class Value(NamedTuple):
    """A value in the form of the command line, and its location in the project file: FILE:LINE."""

    value: Any
    origin: str


@dataclass(frozen=True)
class Project:
    """The values of a project file in the selected environment."""

    folder: Path = field(default_factory=Path)
    values: dict[Key, Value] = field(default_factory=dict)
    targets: dict[str, dict[Key, Value]] = field(default_factory=dict)
    secrets: list[str] = field(default_factory=list)  # the locations of secrets in the file

    def find(self, option: Declared, target: str | None = None) -> Value | None:
        """Return an option's value in the file, or None. For options of targets, `target` names the target to read."""
        values = self.targets.get(target or "", {}) if option.group == TARGETS else self.values
        return values.get((option.group or "", option.key))

    def target(self, given: str | None, *, must_be: bool) -> str | None:
        """Return `given` if it is the name of a target, or `None` if it is a URL.

        If nothing is given, returns `None` or, with `must_be`, the name of the only target. Raises `UsageError` if
        there are several to choose from, or if the name is misspelled.
        """
        if given is None and must_be and self.targets:
            given, *others = self.targets
            if others:
                names = ", ".join(self.targets)
                raise UsageError(f"The project has the targets {names}: select one with --to.")
        if given is None or given in self.targets:
            return given
        for meant in get_close_matches(given, self.targets, 1):
            raise UsageError(f"The project has no target {given}: did you mean {meant}?")
        return None


def find_file(start: Path) -> Path | None:
    """Return the project file in a folder or its nearest parent, or `None` if there is none.

    Raises `UsageError` if the project file is not a regular file. Also raises it if the file is in a parent folder and
    belongs to another user, because commands run the code that a project file names.
    """
    for folder in (start, *start.parents):
        for file in (folder / FILE, folder / PYPROJECT):
            if not os.path.lexists(file) or (file.name == PYPROJECT and not _has_table(file)):
                continue
            if not file.is_file():
                raise UsageError(f"{file} is not a file.")
            if folder != start and file.stat().st_uid not in {0, os.getuid(), start.stat().st_uid}:
                raise UsageError(f"{file} belongs to another user: change to its folder, or copy it.")
            return file
    return None


def read(schema: Schema, chosen: str | None) -> Project:
    """Read the project file, if there is one. Values of the environment `chosen` override those outside environments.

    Raises `UsageError` for an unknown environment, an unknown key or an invalid value: the message names file and line.
    """
    here = Path.cwd()
    file = find_file(here)
    if file is None:
        if chosen:
            raise UsageError(f"There is no environment {chosen!r}: no {FILE} is in {here} or its parents.")
        return Project()
    source, document = _load(file, os.path.relpath(file, here))
    reader = _Reader(schema, file, ROOT * (file.name == PYPROJECT), _lines(source))
    document = dict(reader.table((), reduce(dict.__getitem__, reader.root, document)))
    environments = reader.table(("env",), document.pop("env", {}))
    if chosen and chosen not in environments:
        raise reader.wrong(("env",), f"there is no environment {chosen!r}{_meant(chosen, environments)}")
    project = Project(file.parent)
    for name, table in [("", document), *environments.items()]:
        above = ("env", name) if name else ()
        for names, value in reader.entries(above, reader.table(above, table)):
            key, given = reader.checked(names, value, above)
            place = reader.place((*above, *names))
            if any(map(is_secret, given if isinstance(given, list) else [str(given)])):
                project.secrets.append(f"{place}: {names[-1]}")
            if name in ("", chosen):
                into = project.targets.setdefault(names[1], {}) if key[0] == TARGETS else project.values
                into[key] = Value(given, f"{place} [env.{name}]" if name else place)
    for name, target in project.targets.items():
        if (TARGETS, "to") not in target:
            raise reader.wrong((TARGETS, name), f"the target {name} has no URL: add to = URL")
    return project


def _has_table(file: Path) -> bool:
    """Return whether a pyproject.toml has a table [tool.consistent]. False for an unreadable or invalid file."""
    try:
        if b"consistent" not in file.read_bytes():
            return False
        tool = _load(file, str(file))[1].get(ROOT[0], {})
    except (OSError, UsageError):
        return False
    return isinstance(tool, dict) and ROOT[1] in tool


def _load(file: Path, shown: str) -> tuple[str, dict[str, Any]]:
    import tomllib

    try:
        source = file.read_text("utf-8-sig")
        return source, tomllib.loads(source)
    except UnicodeError as error:
        raise UsageError(f"{shown} is not UTF-8 text: {error}.") from error
    except OSError as error:
        raise UsageError(f"{shown} cannot be read: {error.strerror}.") from error
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        line = re.search(r"line (\d+)", str(error))
        raise UsageError(f"{shown}:{line[1] if line else 1}: invalid TOML: {error}.") from error


@dataclass(frozen=True)
class _Reader:
    schema: Schema
    file: Path
    root: Names
    lines: Mapping[Names, int]

    def place(self, names: Names) -> str:
        """Return FILE:LINE of an entry or, if its line is unknown, of the table above it."""
        full = (*self.root, *names)
        found = (self.lines[full[:n]] for n in range(len(full), 0, -1) if full[:n] in self.lines)
        return f"{os.path.relpath(self.file)}:{next(found, 1)}"

    def wrong(self, names: Names, sentence: str) -> UsageError:
        """Return an error with the location of an entry, followed by `sentence`."""
        return UsageError(f"{self.place(names)}: {sentence}{'' if sentence.endswith('?') else '.'}")

    def table(self, names: Names, value: Any) -> Mapping[str, Any]:  # noqa: ANN401 - of TOML
        """Return `value`, which must be a TOML table. `names` is its path in the file.

        Raises `UsageError` for any other value, and for a name given twice, such as once with `-` and once with `_`.
        """
        if isinstance(value, Mapping):
            for name, times in Counter(each.replace("_", "-") for each in value).items():
                if times > 1 and name != TARGETS:
                    raise self.wrong((*names, name), f"{name} is given twice: keep one")
            return value
        if names[:-1] == (TARGETS,):
            raise self.wrong(names, f"a target needs a name: use [{TARGETS}.NAME]")
        full = names or self.root
        raise self.wrong(names, f"{full[-1]} must be a table, [{'.'.join(full)}]")

    def entries(self, above: Names, table: Mapping[str, Any]) -> Iterator[tuple[Names, Any]]:
        """Yield the path and value of each entry of the top level or, with `above`, of an environment."""
        groups = {group for group, _ in self.schema if group}
        for name, value in table.items():
            if name not in groups:
                yield (name,), value
                continue
            for key, each in self.table((*above, name), value).items():
                inner = self.table((*above, name, key), each) if name == TARGETS else {"": each}
                yield from (((name, key, *filter(None, [last])), one) for last, one in inner.items())

    def checked(self, names: Names, value: object, above: Names) -> tuple[Key, Any]:
        """Return the key of an entry, and its value in the form of the command line.

        `above` is the path of the environment, if any. Raises `UsageError` for an unknown key or an invalid value.
        """
        group, name = names[0] if names[1:] else "", names[-1]
        key = (group, name.replace("_", "-"))
        if key not in self.schema:
            known = [each for of, each in self.schema if of == group]
            known += [] if group else sorted({of for of, _ in self.schema if of} | {"env"})
            elsewhere = [f": it belongs {_table(of)}" for of, each in self.schema if each == key[1]]
            hint = elsewhere[0] if elsewhere else _meant(key[1], known)
            raise self.wrong((*above, *names), f"there is no key {name} {_table(group)}{hint}")
        declared, parameter = self.schema[key]
        try:
            given = _as_typed(declared, value)
            parameter.process_value(typer.Context(TyperCommand("consistent")), given)
            declared.field.metadata.get("check", str)(given)
        except (typer.BadParameter, ValueError, UsageError, EventStoreError) as error:
            reason = getattr(error, "message", str(error)).removeprefix("Value error, ").rstrip(".")
            raise self.wrong((*above, *names), f"{name} is invalid: {reason}") from error
        if isinstance(given, list):
            return key, [self.anchored(declared, each) for each in given]
        return key, self.anchored(declared, given) if isinstance(given, str) else given

    def anchored(self, declared: Declared, text: str) -> str:
        """Return a value, with a relative path resolved against the project file's folder. Others stay unchanged."""
        before = "".join(text.partition("=")[:2]) if declared.is_many and "=" in text else ""
        path = text.removeprefix(before)
        scheme = next((each for each in ("sqlite:///", "file:") if path.startswith(each)), "")
        path = path.removeprefix(scheme)
        kind = declared.field.metadata.get("metavar", "").partition("|")[0]
        is_path = scheme or (kind in PATHS and not re.match(r"[\w+.-]{2,}:|azurite$", path))
        if self.file.parent == Path.cwd() or not is_path or path.startswith("/"):
            return text
        return f"{before}{scheme}{os.path.normpath(self.file.parent / path)}"


def _meant(name: str, known: Iterable[str]) -> str:
    """Return a hint with the closest known name or, without one, all known names."""
    near, listed = get_close_matches(name, list(known), 1), ", ".join(sorted(known))
    return f": did you mean {near[0]}?" if near else listed and f": use one of {listed}"


def _table(group: str) -> str:
    return f"in [{group}{'.NAME' * (group == TARGETS)}]" if group else "at the top level"


def _as_typed(declared: Declared, value: Any) -> bool | str | list[str]:  # noqa: ANN401 - of TOML
    """Convert a TOML value to the form of the command line. Raises `ValueError` for the wrong type."""
    kind, is_text = declared.kind, "parse" in declared.field.metadata
    takes: Any = (str, int) if is_text else str
    what = "text"
    if get_origin(kind) is Mapping:
        takes, what = dict, "a table, such as { name = 'value' }"
    elif declared.is_many:
        takes, what = list, "a list of names"
    elif kind is bool:
        takes, what = bool, "true or false"
    elif kind in (int, float) and not is_text:
        takes, what = (int, float), "a number"
    if not isinstance(value, takes) or (isinstance(value, bool) and kind is not bool):
        raise ValueError(f"it must be {what}")
    if isinstance(value, dict):
        inner = next((name for name, each in value.items() if isinstance(each, dict | list)), None)
        if inner is not None:
            raise ValueError(f"{inner} must not be a table or list: quote names with dots")
        return [f"{name}={str(e).lower() if isinstance(e, bool) else e}" for name, e in value.items()]
    return value if isinstance(value, bool) else [*map(str, value)] if isinstance(value, list) else str(value)


_NAME = re.compile(r"""\s*(?:"([^"]*)"|'([^']*)'|([\w-]+))\s*(\.)?""")


def _lines(source: str) -> dict[tuple[str, ...], int]:
    found: dict[tuple[str, ...], int] = {}
    table: tuple[str, ...] = ()
    for number, line in enumerate(source.splitlines(), 1):
        begun = line.lstrip()
        is_table = begun.startswith("[")
        names, rest = [], begun.lstrip("[")
        while match := _NAME.match(rest):
            names.append(next(filter(None, match.groups()[:3]), ""))
            rest = rest[match.end() :]
            if not match[4]:
                break
        if names and is_table and rest.startswith("]"):
            table = tuple(names)
            found.setdefault(table, number)
        elif names and not is_table and rest.startswith("="):
            found.setdefault((*table, *names), number)
    return found


# Options that select the input. For other options, the last value counts, as usual.
_ONCE = frozenset({"--messages", "--message", "--stream", "--handler", "--reason", "--id", "--edit"})
_WITH_LOGS = frozenset({"reprocess", "fork"})  # commands that take several logs


class Command(TyperCommand):
    """A command with defaults from the project file. Rejects repeated options that select input, such as --messages."""

    @property
    def declared(self) -> Mapping[str, Declared]:
        """The options that are dataclass fields, by parameter name."""
        return getattr(self.callback, "declared", {})

    def options(self) -> Iterator[tuple[Declared, Any]]:
        """Yield each option that has a key in the project file, with its parameter."""
        for parameter in self.params:
            declared = self.declared.get(parameter.name)
            if declared is not None and declared.group is not None:
                yield declared, parameter

    @staticmethod
    def counts(option: Declared, given: Mapping[str, Any]) -> bool:
        """Return whether the file's value of an option applies, if the options `given` are on the command line."""
        # A policy contains only the typed rules; those of the file are for single truncations.
        is_of_truncation = option.group == "truncate" and given.get("policy") is not None
        replaces_log = option.name == "messages" and given.get("unfinished") is not None
        return not (is_of_truncation or replaces_log)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - typer shows no type for it
        """Parse the arguments, with defaults from the project file."""
        given, rest, order = self.make_parser(ctx).parse_args(args=list(args))
        for option, times in Counter(order).items():
            name = option.opts[0]
            if times > 1 and name in _ONCE and not getattr(option, "multiple", False):
                more = " A log may be a folder, or a pattern such as 'logs/*.jsonl'." * (name == "--messages")
                ctx.fail(f"{name} is given {times} times, but takes one value.{more}")
        log = self.log(ctx, given, rest)
        known = [] if given.get("help") or ctx.resilient_parsing else list(self.options())
        project = read_project(ctx, given.get("env")) if known else Project()
        of_target, target = self.target(project, given)
        found = {each.name: project.find(each, target) for each, _ in known if self.counts(each, given)}
        ctx.default_map = {name: each.value for name, each in found.items() if each is not None} | log
        ctx.allow_extra_args = bool(log)
        try:
            super().parse_args(ctx, args)
        except typer.BadParameter as error:
            error.message = error.message.removeprefix("Value error, ")  # added by pydantic
            name = getattr(error.param, "name", None) or ""
            source = ctx.get_parameter_source(name)
            if source is not None and source.name == "ENVIRONMENT" and name in self.declared:
                error.message += f" The value is from {self.declared[name].variable}."
            raise
        ctx.params.update(log)
        if target is not None:
            ctx.params[of_target] = project.targets[target][TARGETS, "to"].value
        return []

    def format_options(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401
        """Write the help of the common options or, with --help-all, of all, grouped by table of the project file."""
        parts: dict[str, list[Any]] = {"Arguments": [], "Options": []}
        for parameter in self.get_params(ctx):
            record: Any = parameter.get_help_record(ctx)
            declared = self.declared.get(parameter.name)
            part = "Arguments" if parameter.param_type_name == "argument" else "Options"
            if declared is not None and declared.is_rare:
                part = f"[{declared.group}] in {FILE}" if declared.group else "More options"
            if part in ("Arguments", "Options") or ctx.meta.get(SHOW_ALL):
                parts.setdefault(part, []).append((record[0].partition(" / ")[0], record[1]))
        for part, records in parts.items():
            if records:
                with formatter.section(part):
                    formatter.write_dl(records)

    @property
    def has_log(self) -> bool:
        """Whether the command takes a log as a positional argument."""
        return "messages" in self.declared and self.declared["messages"].group is not None

    def log(self, ctx: Any, given: Mapping[str, Any], rest: list[str]) -> dict[str, str]:  # noqa: ANN401
        """Return `{"messages": LOG}` if `rest`, the positional arguments, has a log. Otherwise return an empty dict."""
        if not rest or not self.has_log:
            return {}
        log, *more = (given["messages"], *rest) if given.get("messages") else rest
        if more and self.name in _WITH_LOGS:
            return {"messages": ",".join((log, *more))}
        if more:
            ctx.fail(f"Got unexpected extra argument ({more[0]}): the log is {log}.")
        return {"messages": log}

    def target(self, project: Project, given: Mapping[str, Any]) -> tuple[str, str | None]:
        """Return the name of the parameter for a target, and the name of the selected target.

        The first is "" if the command takes no target. The second is None if no target of the project is selected.
        Raises `UsageError` if the command does not support a setting of the target.
        """
        option = next((each.name for each, _ in self.options() if each.name in ("to", "publish")), "")
        if not option or not project.targets:
            return option, None
        found = project.find(self.declared[option])
        said = given.get(option) or os.environ.get(self.declared[option].variable or "")
        said = said or (found and found.value)
        name = project.target(said, must_be=option == "to" and not given.get("help"))
        taken = {declared.key for declared, _ in self.options()} | {"to"}
        for (_, key), value in (project.targets[name] if name else {}).items():
            if key not in taken:
                use = f"use `consistent publish --to {name}`"
                raise UsageError(f"{value.origin}: --{option} does not support {key}: {use}.")
        return option, name

    def collect_usage_pieces(self, ctx: Any) -> list[str]:  # noqa: ANN401
        """Return the pieces of the usage line, with [LOG] if the command takes a log."""
        return super().collect_usage_pieces(ctx) + ["[LOG]"] * self.has_log


def schema(command: Any) -> Iterator[tuple[Key, tuple[Declared, Any]]]:  # noqa: ANN401
    """Yield each key of the project file with its option and parameter, for a command and all commands below it."""
    for each in getattr(command, "commands", {}).values():
        yield from schema(each)
    for each, parameter in command.options() if isinstance(command, Command) else ():
        yield (each.group or "", each.key), (each, parameter)


def read_project(ctx: Any, environment: str | None) -> Project:  # noqa: ANN401
    """Read the project file, and warn about secrets in it. Adds the file's folder to Python's path, to find the App.

    `environment` names an environment in the file. By default, `CONSISTENT_ENV` names it, if the variable is set.
    """
    project = read(dict(schema(ctx.find_root().command)), environment or os.environ.get(CHOSEN))
    for place in project.secrets:
        Screen().note(f"Warning: {place} contains a secret: use env:NAME or file:PATH.")
    if project.folder not in (Path(), Path.cwd()) and str(project.folder) not in sys.path:
        sys.path.append(str(project.folder))  # to find the module of the app
    return project
