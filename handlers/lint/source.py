"""The user's source: modules are found and parsed, never imported. Each has the names that it binds."""

import ast
import importlib.util
import sys
import tokenize
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from handlers.errors import HandlersError


class SourceError(HandlersError):
    """Raised when source cannot be found, read or parsed. The error text gives the location."""


FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


@dataclass(frozen=True, slots=True)
class Imported:
    """An import of a module, or of an `attribute` of the module. `level` is the number of leading dots."""

    module: str
    attribute: str | None = None
    level: int = 0


@dataclass(frozen=True, slots=True)
class Assigned:
    """An assignment to a name, or an annotation of the name without a value."""

    value: ast.expr | None
    annotation: ast.expr | None = None
    is_part: bool = False  # whether the name is bound to a member of the value


Binding = Imported | Assigned | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
Bindings = dict[str, list[Binding]]


def bindings_of(body: Iterable[ast.stmt]) -> Bindings:
    """Return the bindings in a body by name, without those inside functions and classes. Star imports are named `*`."""
    bindings: Bindings = {}
    for name, binding in _bound(body):
        bindings.setdefault(name, []).append(binding)
    return bindings


def imported_names(node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, Imported]]:
    for alias in node.names:
        top = alias.name.partition(".")[0]
        if isinstance(node, ast.ImportFrom):
            yield alias.asname or alias.name, Imported(node.module or "", alias.name, node.level)
        else:
            yield alias.asname or top, Imported(alias.name if alias.asname else top)


def _bound(body: Iterable[ast.AST]) -> Iterator[tuple[str, Binding]]:
    for statement in body:
        match statement:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield statement.name, statement
                continue
            case ast.Import() | ast.ImportFrom():
                yield from imported_names(statement)
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    is_part = not isinstance(target, ast.Name)
                    names = (each for each in ast.walk(target) if isinstance(each, ast.Name))
                    yield from ((each.id, Assigned(value, None, is_part)) for each in names)
            case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation, value=value):
                yield name, Assigned(value, annotation)
            case ast.AugAssign(target=ast.Name(id=name), value=value):
                yield name, Assigned(value)
            case _ if type(statement).__name__ == "TypeAlias":
                yield statement.name.id, Assigned(statement.value)  # type: ignore[attr-defined] # new in Python 3.12
        for inner in ("body", "orelse", "finalbody", "handlers", "cases"):
            yield from _bound(getattr(statement, inner, ()))


_HANDLERS = Path(__file__).resolve().parents[1]
_FRAMEWORK = tuple(_HANDLERS.parent / name for name in (_HANDLERS.name, "eventstore", "runtime"))
_PACKAGE = "__init__.py"


@dataclass(eq=False)
class SourceModule:
    """A parsed module of the user: its syntax tree, and the names that it binds."""

    name: str
    path: Path
    text: str
    tree: ast.Module
    bindings: Bindings  # of its top level
    changed: frozenset[str]  # the names that its functions declare `global`


class Modules:
    """Finds and parses the user's modules. `opened` has those parsed so far, by file."""

    def __init__(self) -> None:
        self.opened: dict[Path, SourceModule] = {}
        self._roots: list[Path] = [Path.cwd()]

    def open(self, path: Path) -> SourceModule:
        """Return the module of a file or folder, cached. Raises `SourceError` if the file cannot be read or parsed."""
        path = path.resolve()
        if path not in self.opened:
            # Modules are searched from the folder of the file's package up to the working directory.
            root = path.parent
            while (root / _PACKAGE).exists() and root != root.parent:
                root = root.parent
            above = [folder for folder in root.parents if folder.is_relative_to(self._roots[0])]
            self._roots += [folder for folder in (root, *above) if folder not in self._roots]
            name = path.parent.name if path.name == _PACKAGE else path.stem
            text, tree = _parsed(path) if path.suffix == ".py" else ("", ast.Module([], []))
            declared = (node.names for node in ast.walk(tree) if isinstance(node, ast.Global))
            changed = frozenset(each for names in declared for each in names)
            self.opened[path] = SourceModule(name, path, text, tree, bindings_of(tree.body), changed)
        return self.opened[path]

    def find(self, name: str) -> SourceModule | None:
        """Return a module by its full name, or None if the module is not the user's."""
        top, *rest = name.split(".")
        if top == _HANDLERS.name:
            return None  # though a user's file may have this name inside a package
        is_standard = top in sys.stdlib_module_names
        for root in self._roots[:1] if is_standard else self._roots:
            file = _file(root.joinpath(top, *rest))
            if file is not None and _is_users(file):
                return self.open(file)
        origin = None if is_standard else _origin(top)
        return self._open_at(origin.joinpath(*rest)) if origin and _is_users(origin) else None

    def near(self, module: SourceModule, name: str, level: int) -> SourceModule | None:
        """Return a module by a relative name, or None if it does not exist. `level` 1 is the folder of `module`."""
        folder = module.path.parents[min(level, len(module.path.parents)) - 1]
        return self._open_at(folder.joinpath(*filter(None, name.split("."))))

    def inside(self, module: SourceModule, name: str) -> SourceModule | None:
        """Return the module `name` in `module`, a package or plain folder, or None if there is no such module."""
        if module.path.name == _PACKAGE:
            return self._open_at(module.path.parent / name)
        return None if module.path.suffix == ".py" else self._open_at(module.path / name)

    def _open_at(self, path: Path) -> SourceModule | None:
        file = _file(path)
        return self.open(file) if file else None


def locate(name: str) -> Path:
    """Return the file of a module by its full name. Raises `SourceError` if there is no such module."""
    top, *rest = name.split(".")
    file = _file(Path.cwd().joinpath(top, *rest))
    if file is None and (origin := _origin(top)):
        file = _file(origin.joinpath(*rest))
    if file is None or file.suffix != ".py":
        raise SourceError(f"There is no module {name} in {Path.cwd()} or on Python's path.")
    return file


def _file(path: Path) -> Path | None:
    for candidate in (path / _PACKAGE, path.with_name(f"{path.name}.py")):
        if candidate.is_file():
            return candidate.resolve()
    return path.resolve() if path.is_dir() else None


def _is_users(path: Path) -> bool:
    is_installed = not {"site-packages", "dist-packages"}.isdisjoint(path.parts)
    return not is_installed and not any(path.is_relative_to(own) for own in _FRAMEWORK)


def _origin(name: str) -> Path | None:
    """Return the folder of a package on Python's path or, for another module, its file's path without `.py`.

    Return None if the module is not found or not written in Python.
    """
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError, AttributeError):
        spec = None
    path = Path(spec.origin).resolve() if spec and spec.origin else Path()
    return (path.parent if path.name == _PACKAGE else path.with_suffix("")) if path.suffix == ".py" else None


_PARSING_ERRORS = (SyntaxError, ValueError, RecursionError, MemoryError)  # ValueError also for encodings


def parse_expression(text: str) -> ast.expr | None:
    try:
        with warnings.catch_warnings(action="ignore"):
            return ast.parse(text, mode="eval").body
    except _PARSING_ERRORS:
        return None


def _parsed(path: Path) -> tuple[str, ast.Module]:
    try:
        with tokenize.open(path) as file, warnings.catch_warnings(action="ignore"):
            text = file.read()
            return text, ast.parse(text)
    except OSError as error:
        raise SourceError(f"{shown(path)} cannot be read: {error.strerror or error}.") from error
    except _PARSING_ERRORS as error:
        line = getattr(error, "lineno", None)
        invalid = f"{shown(path)}:{line}: this is not valid Python: {getattr(error, 'msg', '')}."
        raise SourceError(invalid if line else f"{shown(path)} is not Python source: {error}.") from error


def shown(path: Path) -> str:
    """Return a path as text. Paths inside the working directory are relative."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
