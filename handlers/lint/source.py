"""The user's source: modules found and parsed, never imported, and the names that they bind."""

from __future__ import annotations

import ast
import importlib.util
import sys
import tokenize
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from handlers.errors import HandlersError

# The errors of the linter.
#
# HandlersError
# └── SourceError   source cannot be found, read or parsed; one sentence says which and where


class SourceError(HandlersError):
    """Raised when source cannot be found, read or parsed."""


# Bindings: the names that the statements of a module or class body bind, found without running them.

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


@dataclass(frozen=True, slots=True)
class Imported:
    """A module, or an `attribute` of it; `level` is the number of dots of a relative import."""

    module: str
    attribute: str | None = None
    level: int = 0


@dataclass(frozen=True, slots=True)
class Assigned:
    """An assigned expression, or a part of it when it is unpacked; and the annotation of the name."""

    value: ast.expr | None
    annotation: ast.expr | None = None
    is_part: bool = False


Binding = Imported | Assigned | Definition


@dataclass(frozen=True, slots=True)
class Bindings:
    """The names of a body, each with all its bindings, and the star imports."""

    names: dict[str, list[Binding]]
    stars: tuple[Imported, ...]


def bindings_of(body: Iterable[ast.stmt]) -> Bindings:
    """Return the bindings of the statements of a body, those within functions and classes left out."""
    names: dict[str, list[Binding]] = {}
    stars = []
    for name, binding in _bound(body):
        if name == "*" and isinstance(binding, Imported):
            stars.append(binding)
        else:
            names.setdefault(name, []).append(binding)
    return Bindings(names, tuple(stars))


def imported_names(node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, Imported]]:
    """Yield the names that an import binds."""
    for alias in node.names:
        if isinstance(node, ast.ImportFrom):
            yield alias.asname or alias.name, Imported(node.module or "", alias.name, node.level)
        elif alias.asname:
            yield alias.asname, Imported(alias.name)
        else:
            top = alias.name.partition(".")[0]
            yield top, Imported(top)


def target_names(target: ast.expr) -> Iterator[str]:
    """Yield the names in the target of an assignment."""
    for node in ast.walk(target):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def _bound(body: Iterable[ast.stmt]) -> Iterator[tuple[str, Binding]]:
    for statement in body:
        yield from _bound_by(statement)
        for inner in _bodies(statement):
            yield from _bound(inner)


def _bound_by(statement: ast.stmt) -> Iterator[tuple[str, Binding]]:
    match statement:
        case ast.Import() | ast.ImportFrom():
            yield from imported_names(statement)
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            yield statement.name, statement
        case ast.Assign(targets=targets, value=value):
            for target in targets:
                for name in target_names(target):
                    yield name, Assigned(value, is_part=not isinstance(target, ast.Name))
        case ast.For(target=target, iter=iterated):
            yield from ((name, Assigned(iterated, is_part=True)) for name in target_names(target))
        case ast.With(items=items):
            targets = [item.optional_vars for item in items if item.optional_vars is not None]
            yield from ((name, Assigned(None)) for target in targets for name in target_names(target))
        case _:
            yield from _named_alone(statement)


def _named_alone(statement: ast.stmt) -> Iterator[tuple[str, Binding]]:
    """Yield the name of a statement that can bind only one."""
    match statement:
        case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation, value=value):
            yield name, Assigned(value, annotation)
        case ast.AugAssign(target=ast.Name(id=name), value=value):
            yield name, Assigned(value)
        case _ if type(statement).__name__ == "TypeAlias":
            yield statement.name.id, Assigned(statement.value)  # type: ignore[attr-defined] # new in Python 3.12
        case _:
            return


def _bodies(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    if isinstance(statement, Definition):
        return
    for name in ("body", "orelse", "finalbody"):
        yield getattr(statement, name, [])
    for part in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
        yield part.body


# Parsing: text to syntax trees, without the warnings of Python's parser.


def parse_module(text: str) -> ast.Module:
    """Return the syntax tree of a module. Raises what `ast.parse` does."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)
        warnings.simplefilter("ignore", DeprecationWarning)
        return ast.parse(text)


def parse_expression(text: str) -> ast.expr | None:
    """Return the syntax tree of an expression, None when the text is not one."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            return ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


# The user's modules: found and parsed, never imported.

_HANDLERS = Path(__file__).resolve().parents[1]
_FRAMEWORK = tuple(_HANDLERS.parent / name for name in (_HANDLERS.name, "eventstore", "runtime"))
_INSTALLED = frozenset({"site-packages", "dist-packages"})
_PACKAGE = "__init__.py"


class SourceModule:
    """A module of the user's: its name, its file and its syntax tree."""

    def __init__(self, name: str, path: Path, text: str, tree: ast.Module) -> None:
        self.name = name
        self.path = path
        self.text = text
        self.tree = tree

    @property
    def folder(self) -> Path | None:
        """The folder of a package; None for a plain module."""
        if self.path.suffix != ".py":
            return self.path
        return self.path.parent if self.path.name == _PACKAGE else None

    @cached_property
    def bindings(self) -> Bindings:
        """The names at the top of the module."""
        return bindings_of(self.tree.body)

    @cached_property
    def changed(self) -> frozenset[str]:
        """The names that some function of the module declares `global`."""
        return frozenset(
            name for node in ast.walk(self.tree) if isinstance(node, ast.Global) for name in node.names
        )


class Modules:
    """The user's modules that were opened so far, by file."""

    def __init__(self) -> None:
        self._by_path: dict[Path, SourceModule] = {}
        self._roots: list[Path] = [Path.cwd()]
        self._specs: dict[str, Path | None] = {}

    def __iter__(self) -> Iterator[SourceModule]:
        yield from list(self._by_path.values())

    def open(self, path: Path) -> SourceModule:
        """Return the module in a file. Raises `SourceError` when it cannot be read or parsed."""
        path = path.resolve()
        found = self._by_path.get(path)
        if found is not None:
            return found
        root = self._add_roots(path)
        text = _read(path) if path.suffix == ".py" else ""
        module = SourceModule(_dotted(path, root), path, text, _parse(path, text))
        self._by_path[path] = module
        return module

    def find(self, name: str) -> SourceModule | None:
        """Return a module by its full name, None when it is no module of the user's."""
        parts = name.split(".")
        if parts[0] == _HANDLERS.name:
            return None  # within a package or folder, a file of the user's may have this name too
        roots = self._roots[:1] if parts[0] in sys.stdlib_module_names else self._roots
        for root in roots:
            found = _file(root.joinpath(*parts))
            if found is not None and _is_users(found):
                return self.open(found)
        top = self._top(parts[0])
        found = top and _file(top.joinpath(*parts[1:]))
        return self.open(found) if found else None

    def near(self, module: SourceModule, name: str, level: int) -> SourceModule | None:
        """Return a module by a relative name: `level` is 1 for one in the same folder."""
        folder = module.path.parent
        for _ in range(level - 1):
            folder = folder.parent
        found = _file(folder.joinpath(*name.split(".")) if name else folder)
        return self.open(found) if found else None

    def inside(self, module: SourceModule, name: str) -> SourceModule | None:
        """Return a module in a package, None when there is none."""
        found = module.folder and _file(module.folder / name)
        return self.open(found) if found else None

    def _add_roots(self, path: Path) -> Path:
        """Search for modules in the folder of a file's package, and in those from there up to the working directory."""
        root = path.parent
        while (root / _PACKAGE).exists() and root != root.parent:
            root = root.parent
        here = self._roots[0]
        above = [folder for folder in root.parents if folder.is_relative_to(here)]
        self._roots += [folder for folder in (root, *above) if folder not in self._roots]
        return root

    def _top(self, name: str) -> Path | None:
        """Return the path of a package on Python's path, without suffix; None when it is not the user's."""
        if name not in self._specs:
            origin = None if name in sys.stdlib_module_names else _origin(name)
            self._specs[name] = origin if origin and _is_users(origin) else None
        return self._specs[name]


def locate(name: str) -> Path:
    """Return the file of a module by its full name. Raises `SourceError` when there is none."""
    parts = name.split(".")
    found = _file(Path.cwd().joinpath(*parts))
    if found is None:
        top = _origin(parts[0])
        found = top and _file(top.joinpath(*parts[1:]))
    if found is None or found.suffix != ".py":
        raise SourceError(f"There is no module {name} in {Path.cwd()} or on Python's path.")
    return found


def _file(place: Path) -> Path | None:
    """Return the package, module or plain folder at a path without suffix."""
    for candidate in (place / _PACKAGE, place.with_name(f"{place.name}.py")):
        if candidate.is_file():
            return candidate.resolve()
    return place.resolve() if place.is_dir() else None


def _is_users(path: Path) -> bool:
    return not _INSTALLED & set(path.parts) and not any(path.is_relative_to(own) for own in _FRAMEWORK)


def _origin(name: str) -> Path | None:
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError, AttributeError):
        return None
    if spec is None or not spec.origin or not spec.origin.endswith(".py"):
        return None
    path = Path(spec.origin).resolve()
    return path.parent if path.name == _PACKAGE else path.with_suffix("")


def _dotted(path: Path, root: Path) -> str:
    parts = list(path.relative_to(root).with_suffix("").parts)
    if parts[-1:] == ["__init__"]:
        parts.pop()
    return ".".join(parts) or path.parent.name


def _read(path: Path) -> str:
    try:
        with tokenize.open(path) as file:
            return file.read()
    except OSError as error:
        raise SourceError(f"{shown(path)} cannot be read: {error.strerror or error}.") from error
    except (SyntaxError, UnicodeDecodeError) as error:
        raise SourceError(f"{shown(path)} is not Python source: {error}.") from error


def _parse(path: Path, text: str) -> ast.Module:
    try:
        return parse_module(text)
    except SyntaxError as error:
        raise SourceError(f"{shown(path)}:{error.lineno}: this is not valid Python: {error.msg}.") from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise SourceError(f"{shown(path)} cannot be parsed: {error}.") from error


def shown(path: Path) -> str:
    """Return a path as text, relative to the working directory if it is in it."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
