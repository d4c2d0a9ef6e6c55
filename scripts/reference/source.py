"""What a module makes public, read from its source: nothing is imported, and so neither Spark nor Azure is needed."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_WIDTH = 100

Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef | ast.Assign | ast.AnnAssign
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class Public:
    """A public name: what defines it, and what is said of it."""

    name: str
    node: Definition
    text: str

    @property
    def members(self) -> list[Public]:
        """The public methods and properties of a class."""
        if not isinstance(self.node, ast.ClassDef):
            return []
        found = [each for each in self.node.body if isinstance(each, _FUNCTIONS)]
        return [
            Public(each.name, each, ast.get_docstring(each) or "")
            for each in found
            if not each.name.startswith("_") and "overload" not in _decorators(each)
        ]

    @property
    def is_property(self) -> bool:
        """Whether it is read like a field."""
        return isinstance(self.node, _FUNCTIONS) and "property" in _decorators(self.node)

    @property
    def signature(self) -> str:
        """How it is called, or what it is."""
        if isinstance(self.node, _FUNCTIONS):
            return _call(self.node)
        if isinstance(self.node, ast.ClassDef):
            return _class(self.node)
        return ast.unparse(self.node)


def public_names(module: str) -> list[Public]:
    """Return what a module has in `__all__`, else the classes and functions that it defines, by their names."""
    tree = _tree(module)
    homes = {
        each.asname or each.name: str(node.module)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for each in node.names
    }
    return [_find(name, homes.get(name, module)) for name in _all(tree)]


def module_text(module: str) -> str:
    """Return the docstring of a module."""
    return ast.get_docstring(_tree(module)) or ""


@cache
def _tree(module: str) -> ast.Module:
    path = ROOT.joinpath(*module.split("."))
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return ast.parse(file.read_text())


def _all(tree: ast.Module) -> list[str]:
    listed = [
        node.value for node in tree.body if isinstance(node, ast.Assign) and _names(node) == ["__all__"]
    ]
    if listed:
        return sorted(ast.literal_eval(listed[0]), key=str.lower)
    defined = [node.name for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)]
    return [name for name in defined if not name.startswith("_")]


def _find(name: str, module: str) -> Public:
    body = _tree(module).body
    for position, node in enumerate(body):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name:
            return Public(name, node, ast.get_docstring(node) or "")
        if isinstance(node, ast.Assign | ast.AnnAssign) and name in _names(node):
            return Public(name, node, _text_below(body[position + 1 : position + 2]))
    message = f"{module} does not define {name}."
    raise LookupError(message)


def _names(node: ast.Assign | ast.AnnAssign) -> list[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return [each.id for each in targets if isinstance(each, ast.Name)]


def _text_below(nodes: list[ast.stmt]) -> str:
    """Return the string that stands below an assignment, which says what it means."""
    return "".join(
        node.value.value
        for node in nodes
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _decorators(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> set[str]:
    return {ast.unparse(each).partition("(")[0].rpartition(".")[2] for each in node.decorator_list}


def _call(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    start = f"{'async ' if isinstance(node, ast.AsyncFunctionDef) else ''}def {node.name}"
    end = "" if node.returns is None else f" -> {ast.unparse(node.returns)}"
    return _wrapped(start, _parameters(node.args), end)


def _class(node: ast.ClassDef) -> str:
    for each in node.body:
        if isinstance(each, ast.FunctionDef) and each.name == "__init__":
            return _wrapped(f"class {node.name}", _parameters(each.args), "")
    bases = ", ".join(map(ast.unparse, [*node.bases, *node.keywords]))
    fields = [ast.unparse(each) for each in node.body if _is_field(each)]
    lines = "".join(f"\n    {field}" for field in fields)
    return f"class {node.name}{f'({bases})' if bases else ''}{':' if lines else ''}{lines}"


def _is_field(node: ast.stmt) -> bool:
    """Say whether a statement of a class declares a field, or a member of an enumeration."""
    if not isinstance(node, ast.Assign | ast.AnnAssign):
        return False
    is_of_class = isinstance(node, ast.AnnAssign) and "ClassVar" in ast.unparse(node.annotation)
    return not is_of_class and all(
        not name.startswith("_") and name != "model_config" for name in _names(node)
    )


def _parameters(arguments: ast.arguments) -> list[str]:
    """Return the parameters as they are written, without `self`."""
    leading = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(leading) - len(arguments.defaults)) + list(arguments.defaults)
    found = [_parameter(each, default) for each, default in zip(leading, defaults, strict=True)]
    if arguments.posonlyargs:
        found.insert(len(arguments.posonlyargs), "/")
    if leading and leading[0].arg in {"self", "cls"}:
        found = found[2:] if found[1:2] == ["/"] else found[1:]
    if arguments.vararg or arguments.kwonlyargs:
        found.append(f"*{_parameter(arguments.vararg, None) if arguments.vararg else ''}")
    found += [_parameter(*each) for each in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)]
    return found + ([f"**{_parameter(arguments.kwarg, None)}"] if arguments.kwarg else [])


def _parameter(argument: ast.arg, default: ast.expr | None) -> str:
    annotation = "" if argument.annotation is None else f": {ast.unparse(argument.annotation)}"
    equals = " = " if annotation else "="
    return f"{argument.arg}{annotation}{'' if default is None else equals + ast.unparse(default)}"


def _wrapped(start: str, parameters: list[str], end: str) -> str:
    line = f"{start}({', '.join(parameters)}){end}"
    if len(line) <= _WIDTH:
        return line
    inner = "".join(f"    {each},\n" for each in parameters)
    return f"{start}(\n{inner}){end}"
