"""Checks: files and their classes in, a report out."""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from handlers.lint import values
from handlers.lint.interpreter import Interpreter, check_model
from handlers.lint.resolution import CONTEXT, annotated, attribute
from handlers.lint.rules import Finding
from handlers.lint.source import FunctionNode, SourceError, SourceModule, shown
from handlers.lint.values import Arguments, Checker, Class, Function, Instance, Owner, Value, instance, owned

_HANDLER = "handlers.Handler"
_ROOTS = frozenset({_HANDLER, "handlers.State", "handlers.Message"})
_RECURSION = 6000  # each call that is followed takes a dozen of Python's own


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
    checker = Checker(Interpreter)
    checked: dict[SourceModule, dict[Class, None]] = {}
    for target in targets:
        module = checker.modules.open(target.path)
        checked.setdefault(module, {}).update(dict.fromkeys(_chosen(module, target, checker)))
    classes = [definition for definitions in checked.values() for definition in definitions]
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, _RECURSION))
    try:
        for class_ in classes:
            _check_class(class_)
    finally:
        sys.setrecursionlimit(limit)
    found: list[Finding] = []
    for module in list(checker.modules.opened.values()):
        of_module = [each for each in checker.findings.values() if each.path == module.path]
        if of_module or module in checked:
            found += _silence(module, of_module, [each.node for each in checked.get(module, ())])
    found.sort(key=lambda each: (str(each.path), each.line, each.column, each.code))
    return Report(
        findings=tuple(finding for finding in found if not finding.rule.is_note),
        notes=tuple(finding for finding in found if finding.rule.is_note),
        handlers=sum(_HANDLER in definition.mro for definition in classes),
        files=len(checked),
    )


def _chosen(module: SourceModule, target: Target, checker: Checker) -> list[Class]:
    """Return the classes of a module that are to be checked."""
    classes = [checker.top(module).class_of(node) for node in _class_nodes(module.tree.body)]
    found = [each for each in classes if not _ROOTS.isdisjoint(each.mro)]
    if target.classes is None:
        return found
    missing = target.classes - {definition.name for definition in found}
    if missing:
        raise SourceError(
            f"There is no class {', '.join(sorted(missing))} in the source of {shown(module.path)}: a handler can be "
            f"checked when a class statement defines it."
        )
    return [definition for definition in found if definition.name in target.classes]


def _class_nodes(body: list[ast.stmt]) -> Iterator[ast.ClassDef]:
    for statement in body:
        if isinstance(statement, ast.ClassDef):
            yield statement
        if not isinstance(statement, FunctionNode):
            for name in ("body", "orelse", "finalbody"):
                yield from _class_nodes(getattr(statement, name, []))


def _check_class(class_: Class) -> None:
    """Follow the methods of a handler that handle messages, or all that reading a state or message calls."""
    if _HANDLER not in class_.mro:
        _check_stored(class_)
        return
    for base in class_.users_mro:
        for name, bindings in base.bindings.items():
            for binding in bindings:
                if isinstance(binding, FunctionNode) and "handlers.handles" in values.marks(
                    binding, base.body_scope
                ):
                    _check_method(class_, name, base.function(binding))


def _check_method(class_: Class, name: str, method: Function) -> None:
    node, scope = method.node, method.scope
    given: list[Value] = []
    for parameter, owner in zip(node.args.args[1:], (Owner.STATE, Owner.MESSAGE), strict=False):
        declared = annotated(parameter.annotation, scope)
        if not declared and owner is Owner.STATE:
            declared = _state_of(class_)
        for option in declared:
            if isinstance(option, Instance) and isinstance(option.of, Class):
                _check_stored(option.of)
        given.append(owned(declared, owner))
    if isinstance(node, ast.AsyncFunctionDef):
        scope.report("CM502", node, f"async def {node.name}")
    me = instance(class_, Owner.CLASS)
    called = [each for each in attribute(me, name, node, scope) if isinstance(each, Function)]
    # A name that is bound twice, as by two revisions of a method, is followed as each of its bodies.
    if not any(each.node is node for each in called):
        called.append(replace(method, bound=(me,)))
    scope.call(tuple(called), Arguments((*given, instance(CONTEXT))), node)


def _state_of(class_: Class) -> Value:
    """Return the state that a handler names in its base: `Handler[SomeState]`."""
    for base in class_.users_mro:
        for node in base.node.bases:
            if isinstance(node, ast.Subscript):
                return annotated(node.slice, base.scope)
    return ()


def _check_stored(class_: Class) -> None:
    """Follow what reading a state or message calls: validators, default factories and upcasters."""
    check_model(class_)
    scope = class_.scope
    for keyword in class_.node.keywords:
        if keyword.arg == "upcasters":
            upcasters = values.item_of(scope.evaluate(keyword.value))
            scope.call(upcasters, Arguments((values.collection("dict"),)), keyword.value)


# A `noqa` comment with a code and a reason silences a rule on its line or in the statement that begins there.

_COMMENT = re.compile(
    r"#\s*noqa:\s*(?P<codes>[A-Z]+[0-9]+(?:\s*,\s*[A-Z]+[0-9]+)*)(?P<reason>[^#]*)", re.IGNORECASE
)


def _silence(module: SourceModule, found: list[Finding], checked: list[ast.ClassDef]) -> Iterator[Finding]:
    """Yield the findings of a module that are not silenced, and those about its comments.

    An unused comment is reported only within the classes that were checked: other code may not have been followed.
    """
    comments = list(_comments(module))
    starts: dict[int, int] = {}  # by line, the first line of the innermost statement on it
    for node in ast.walk(module.tree) if comments else ():
        if isinstance(node, ast.stmt):
            for line in range(node.lineno, (node.end_lineno or node.lineno) + 1):
                starts[line] = max(starts.get(line, 0), node.lineno)
    used: set[tuple[int, str]] = set()
    for finding in found:
        lines = {finding.line, starts.get(finding.line, finding.line)}
        silencing = {
            (line, finding.code) for line, _, codes, _ in comments if line in lines and finding.code in codes
        }
        used |= silencing
        if not silencing:
            yield finding
    for line, column, codes, reason in comments:
        if not reason:
            yield Finding(module.path, line, column, "CM902", ", ".join(codes))
        is_inside = any(node.lineno <= line <= (node.end_lineno or 0) for node in checked)
        for code in codes:
            if is_inside and (line, code) not in used:
                yield Finding(module.path, line, column, "CM903", code)


def _comments(module: SourceModule) -> Iterator[tuple[int, int, list[str], str]]:
    """Yield the line and column of each comment with codes of this linter, these codes, and the reason."""
    for token in tokenize.generate_tokens(io.StringIO(module.text).readline):
        match = _COMMENT.search(token.string) if token.type == tokenize.COMMENT else None
        codes = [code.strip().upper() for code in match["codes"].split(",")] if match else []
        ours = [code for code in codes if code.startswith("CM")]
        if match and ours:
            yield token.start[0], token.start[1] + 1, ours, match["reason"].strip(" -:()")
