"""Checks: files and their classes in, a report out."""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from handlers.lint import resolution
from handlers.lint.calls import check_model
from handlers.lint.checker import Checker
from handlers.lint.interpreter import Interpreter
from handlers.lint.resolution import CONTEXT, annotated
from handlers.lint.rules import Finding
from handlers.lint.source import FunctionNode, Modules, SourceError, SourceModule, shown
from handlers.lint.values import (
    UNKNOWN,
    Arguments,
    ClassDefinition,
    Function,
    Instance,
    Object,
    Owner,
    Value,
    collection,
    item_of,
    options,
    owned,
)

# A `noqa` comment with a code and a reason silences a rule on its line or in the statement that begins there.

_COMMENT = re.compile(
    r"#\s*noqa:\s*(?P<codes>[A-Z]+[0-9]+(?:\s*,\s*[A-Z]+[0-9]+)*)(?P<reason>[^#]*)", re.IGNORECASE
)
_OURS = "CM"


@dataclass(frozen=True, slots=True)
class Noqa:
    """A comment: its place, the codes of this linter in it, and the reason."""

    line: int
    column: int
    codes: tuple[str, ...]
    reason: str


def silence(module: SourceModule, found: Iterable[Finding], checked: Iterable[ast.AST]) -> Iterator[Finding]:
    """Yield the findings of a module that are not silenced, and those about its comments.

    An unused comment is reported only within the classes that were checked: other code may not have been followed.
    """
    comments = list(_comments(module))
    starts = _starts(module.tree) if comments else {}
    used: set[tuple[Noqa, str]] = set()
    for finding in found:
        lines = {finding.line, starts.get(finding.line, finding.line)}
        silencing = [each for each in comments if each.line in lines and finding.code in each.codes]
        used.update((each, finding.code) for each in silencing)
        if not silencing:
            yield finding
    ranges = [(getattr(node, "lineno", 0), getattr(node, "end_lineno", 0)) for node in checked]
    for comment in comments:
        is_inside = any(first <= comment.line <= last for first, last in ranges)
        yield from _complaints(module, comment, used, is_inside=is_inside)


def _complaints(
    module: SourceModule, comment: Noqa, used: set[tuple[Noqa, str]], *, is_inside: bool
) -> Iterator[Finding]:
    if not comment.reason:
        yield Finding(module.path, comment.line, comment.column, "CM902", ", ".join(comment.codes))
    for code in comment.codes:
        if is_inside and (comment, code) not in used:
            yield Finding(module.path, comment.line, comment.column, "CM903", code)


def _comments(module: SourceModule) -> Iterator[Noqa]:
    for token in tokenize.generate_tokens(io.StringIO(module.text).readline):
        match = _COMMENT.search(token.string) if token.type == tokenize.COMMENT else None
        if match is None:
            continue
        codes = tuple(code.strip().upper() for code in match["codes"].split(","))
        ours = tuple(code for code in codes if code.startswith(_OURS))
        if ours:
            yield Noqa(token.start[0], token.start[1] + 1, ours, match["reason"].strip(" -:()"))


def _starts(tree: ast.Module) -> dict[int, int]:
    """Return, by line, the first line of the innermost statement on it."""
    starts: dict[int, int] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt):
            for line in range(node.lineno, (node.end_lineno or node.lineno) + 1):
                starts[line] = max(starts.get(line, 0), node.lineno)
    return starts


# Roots: where the framework calls the user's code, and with which arguments.

_HANDLER = "handlers.Handler"
_ROOTS = frozenset({_HANDLER, "handlers.State", "handlers.Message"})
_MARK = "handlers.handles"


def classes_in(module: SourceModule, checker: Checker) -> Iterator[ClassDefinition]:
    """Yield the classes of a module that are handlers, states or messages."""
    for node in _class_nodes(module.tree.body):
        definition = checker.class_of(node, checker.module_scope(module))
        if not _ROOTS.isdisjoint(resolution.mro(definition, checker)):
            yield definition


def is_handler(definition: ClassDefinition, checker: Checker) -> bool:
    """Return whether a class is a handler."""
    return resolution.is_a(definition, _HANDLER, checker)


def check_class(definition: ClassDefinition, checker: Checker) -> None:
    """Follow the methods of a handler that handle messages, or all that reading a state or message calls."""
    if not is_handler(definition, checker):
        _check_stored(definition, checker)
        return
    for name, method in _handling(definition, checker):
        _check_method(definition, name, method, checker)


def _class_nodes(body: list[ast.stmt]) -> Iterator[ast.ClassDef]:
    for statement in body:
        if isinstance(statement, ast.ClassDef):
            yield statement
        if not isinstance(statement, FunctionNode):
            for name in ("body", "orelse", "finalbody"):
                yield from _class_nodes(getattr(statement, name, []))


def _handling(definition: ClassDefinition, checker: Checker) -> Iterator[tuple[str, Function]]:
    """Yield the methods that handle messages, those of base classes included."""
    me = Object(definition, owner=Owner.CLASS)
    for base in resolution.users_mro(definition, checker):
        for name, bindings in base.bindings.names.items():
            for binding in bindings:
                if isinstance(binding, FunctionNode) and _MARK in resolution.marks_of(base, binding, checker):
                    yield name, Function(base.function(binding), me)


def _check_method(definition: ClassDefinition, name: str, method: Function, checker: Checker) -> None:
    node, scope = method.definition.node, method.definition.scope
    given: list[Value] = []
    for parameter, owner in zip(node.args.args[1:], (Owner.STATE, Owner.MESSAGE), strict=False):
        declared = annotated(parameter.annotation, scope, checker)
        if declared == UNKNOWN and owner is Owner.STATE:
            declared = _state_of(definition, checker)
        for option in options(declared):
            if isinstance(option, Object):
                _check_stored(option.definition, checker)
        given.append(owned(declared, owner))
    arguments = Arguments((*given, Instance(CONTEXT)))
    if isinstance(node, ast.AsyncFunctionDef):
        checker.report("CM502", node, scope, f"async def {node.name}")
    me = Object(definition, owner=Owner.CLASS)
    attribute = resolution.of_object(me, name, node, checker)
    called = [each for each in options(attribute) if isinstance(each, Function)]
    # A name that is bound twice, as by two revisions of a method, is followed as each of its bodies.
    if not any(each.definition is method.definition for each in called):
        called.append(method)
    for each in called:
        checker.call(each, arguments, node, scope)


def _state_of(definition: ClassDefinition, checker: Checker) -> Value:
    """Return the state that a handler names in its base: `Handler[SomeState]`."""
    for base in resolution.users_mro(definition, checker):
        for node in base.node.bases:
            if isinstance(node, ast.Subscript):
                return annotated(node.slice, base.scope, checker)
    return UNKNOWN


def _check_stored(definition: ClassDefinition, checker: Checker) -> None:
    """Follow what reading a state or message calls: validators, default factories and upcasters."""
    check_model(definition, checker)
    for keyword in definition.node.keywords:
        if keyword.arg == "upcasters":
            upcasters = item_of(checker.evaluate(keyword.value, definition.scope))
            checker.call(upcasters, Arguments((collection("dict"),)), keyword.value, definition.scope)


_RECURSION = 6000


@dataclass(frozen=True, slots=True)
class Target:
    """A file to check: all its handlers, states and messages, or only the named classes."""

    path: Path
    classes: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """Findings and notes, sorted by file and line, and the numbers of handlers and files that were checked."""

    findings: tuple[Finding, ...]
    notes: tuple[Finding, ...]
    handlers: int
    files: int

    def document(self) -> dict[str, Any]:
        """Return the report as a JSON object."""
        return {
            "findings": [finding.document() for finding in self.findings],
            "notes": [note.document() for note in self.notes],
            "handlers": self.handlers,
            "files": self.files,
        }


def check(targets: Iterable[Target]) -> Report:
    """Check files without importing them.

    Calls are followed into the user's other modules: those of the same package or folder, under the working directory,
    or on Python's path, but for installed packages. Raises `SourceError` when a file cannot be read or parsed, and when
    it does not define a named class. Takes some milliseconds for a handler.
    """
    checker = Interpreter(Modules())
    checked: dict[SourceModule, dict[ClassDefinition, None]] = {}
    for target in targets:
        module = checker.modules.open(target.path)
        checked.setdefault(module, {}).update(dict.fromkeys(_chosen(module, target, checker)))
    with _deep_recursion():
        for definition in chain.from_iterable(checked.values()):
            check_class(definition, checker)
    found = sorted(_not_silenced(checker, checked), key=lambda finding: finding.order)
    return Report(
        findings=tuple(finding for finding in found if not finding.rule.is_note),
        notes=tuple(finding for finding in found if finding.rule.is_note),
        handlers=sum(is_handler(each, checker) for each in chain.from_iterable(checked.values())),
        files=len(checked),
    )


@contextmanager
def _deep_recursion() -> Iterator[None]:
    """Raise Python's recursion limit: each call that is followed takes a dozen of Python's own."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, _RECURSION))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


def _chosen(module: SourceModule, target: Target, checker: Checker) -> list[ClassDefinition]:
    found = list(classes_in(module, checker))
    if target.classes is None:
        return found
    missing = target.classes - {definition.name for definition in found}
    if missing:
        raise SourceError(
            f"There is no class {', '.join(sorted(missing))} in the source of {shown(module.path)}: a handler can be "
            f"checked when a class statement defines it."
        )
    return [definition for definition in found if definition.name in target.classes]


def _not_silenced(
    checker: Checker, checked: dict[SourceModule, dict[ClassDefinition, None]]
) -> list[Finding]:
    stay: list[Finding] = []
    for module in checker.modules:
        found = [finding for finding in checker.findings.values() if finding.path == module.path]
        if found or module in checked:
            stay += silence(module, found, [definition.node for definition in checked.get(module, ())])
    return stay
