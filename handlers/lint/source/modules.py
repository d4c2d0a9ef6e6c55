"""The user's modules: found and parsed, never imported."""

from __future__ import annotations

import ast
import importlib.util
import sys
import tokenize
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

from handlers.lint.errors import SourceError
from handlers.lint.source.bindings import Bindings, bindings_of
from handlers.lint.source.parsing import parse_module

_HANDLERS = Path(__file__).resolve().parents[2]
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
