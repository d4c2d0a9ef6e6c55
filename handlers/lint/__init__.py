r"""The linter: finds nondeterministic code in the source of handlers, without running it.

    report = check([Target(Path("accounts.py"))])
    print(*report.findings, sep="\n")

`check` starts from the methods that the framework calls, and `interpreter` follows statements and calls. `library`
models library functions, `values` models possible values, and `source` finds the user's modules. `rules` lists rules.
"""

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
from handlers.lint.interpreter import Interpreter
from handlers.lint.library import check_model
from handlers.lint.rules import RULES, Finding, Rule
from handlers.lint.source import FunctionNode, SourceError, SourceModule, locate, shown
from handlers.lint.values import Arguments, Checker, Class, Function, Owner, Scope, Value

__all__ = ["RULES", "Finding", "Report", "Rule", "SourceError", "Target", "check", "locate"]

_HANDLER = "handlers.Handler"
_ROOTS = frozenset({_HANDLER, "handlers.State", "handlers.Message"})
_RECURSION = 6000  # each followed call takes a dozen of Python's own


@dataclass(frozen=True, slots=True)
class Target:
    """A file to check. All its handlers, states and messages are checked, or only `classes` if given."""

    path: Path
    classes: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """The result of `check`: findings and notes by file and line, and the numbers of checked handlers and files."""

    findings: tuple[Finding, ...]
    notes: tuple[Finding, ...]
    handlers: int
    files: int

    def document(self) -> dict[str, Any]:
        """Return the report in its JSON form."""
        findings, notes = ([each.document() for each in some] for some in (self.findings, self.notes))
        return {"findings": findings, "notes": notes, "handlers": self.handlers, "files": self.files}


def check(targets: Iterable[Target]) -> Report:
    """Check files without importing them.

    Calls are followed into the user's other modules: in the same package or folder, under the working directory, or
    elsewhere on Python's path, except installed packages. Raises `SourceError` if a file cannot be read or parsed, or
    lacks a named class. Takes a few milliseconds per handler.
    """
    checker = Checker(Interpreter)
    checked: dict[SourceModule, dict[Class, None]] = {}
    for target in targets:
        module = checker.modules.open(target.path)
        checked.setdefault(module, {}).update(dict.fromkeys(_chosen(checker.top(module), target.classes)))
    classes = [class_ for of_module in checked.values() for class_ in of_module]
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, _RECURSION))
    try:
        for class_ in classes:
            _check_class(class_)
    finally:
        sys.setrecursionlimit(limit)
    findings: list[Finding] = []
    for module in list(checker.modules.opened.values()):
        of_module = [each for each in checker.findings.values() if each.path == module.path]
        findings += _silence(module, of_module, [each.node for each in checked.get(module, ())])
    findings.sort(key=lambda each: (str(each.path), each.line, each.column, each.code))
    return Report(
        findings=tuple(each for each in findings if not each.rule.is_note),
        notes=tuple(each for each in findings if each.rule.is_note),
        handlers=sum(_HANDLER in class_.mro for class_ in classes),
        files=len(checked),
    )


def _chosen(top: Scope, names: frozenset[str] | None) -> list[Class]:
    classes = map(top.class_of, _class_nodes(top.module.tree.body))
    relevant = [each for each in classes if not _ROOTS.isdisjoint(each.mro)]
    missing = (names or frozenset()) - {each.name for each in relevant}
    if missing:
        names_of_missing = ", ".join(sorted(missing))
        where = f"{shown(top.module.path)}: only classes defined by a class statement can be checked"
        raise SourceError(f"There is no class {names_of_missing} in the source of {where}.")
    return [each for each in relevant if names is None or each.name in names]


def _class_nodes(body: list[ast.stmt]) -> Iterator[ast.ClassDef]:
    for statement in body:
        if isinstance(statement, ast.ClassDef):
            yield statement
        if not isinstance(statement, FunctionNode):
            for name in ("body", "orelse", "finalbody"):
                yield from _class_nodes(getattr(statement, name, []))


def _check_class(class_: Class) -> None:
    if _HANDLER not in class_.mro:
        _check_stored(class_)
        return
    for base in class_.users_mro:
        for name, bindings in base.bindings.items():
            for node in bindings:
                if isinstance(node, FunctionNode) and "handlers.handles" in base.body_scope.marks(node):
                    _check_method(class_, name, base.function(node))


def _check_method(class_: Class, name: str, method: Function) -> None:
    node, scope = method.node, method.scope
    bases = [(each, base.scope) for base in class_.users_mro for each in base.node.bases]
    states = [inside.annotated(each.slice) for each, inside in bases if isinstance(each, ast.Subscript)]
    given: list[Value] = []
    for parameter, owner in zip(node.args.args[1:], (Owner.STATE, Owner.MESSAGE), strict=False):
        declared = scope.annotated(parameter.annotation)
        if not declared and owner is Owner.STATE:
            declared = next(iter(states), ())  # `Handler[SomeState]`
        for stored in filter(None, map(values.class_of, declared)):
            _check_stored(stored)
        given.append(values.owned(declared, owner))
    if isinstance(node, ast.AsyncFunctionDef):
        scope.report("CM502", node, f"async def {node.name}")
    me = values.instance(class_, Owner.CLASS)
    called = [each for each in scope.attribute(me, name, node) if isinstance(each, Function)]
    # Names with several bindings, such as revisions of a method, are followed for each.
    if not any(each.node is node for each in called):
        called.append(replace(method, bound=(me,)))
    scope.call(tuple(called), Arguments((*given, values.instance(values.CONTEXT))), node)


def _check_stored(class_: Class) -> None:
    """Follow the code that runs when a state or message is decoded: validators, default factories and upcasters."""
    check_model(class_)
    for keyword in class_.node.keywords:
        if keyword.arg == "upcasters":
            upcasters = values.item_of(class_.scope.evaluate(keyword.value))
            class_.scope.call(upcasters, Arguments((values.collection("dict"),)), keyword.value)


_COMMENT = re.compile(
    r"#\s*noqa:\s*(?P<codes>[A-Z]+[0-9]+(?:\s*,\s*[A-Z]+[0-9]+)*)(?P<reason>[^#]*)", re.IGNORECASE
)


def _silence(module: SourceModule, findings: list[Finding], checked: list[ast.ClassDef]) -> Iterator[Finding]:
    """Yield the findings that no `noqa` comment silences, and a finding for each unused or unexplained comment.

    Only comments inside the `checked` classes are reported as unused.
    """
    comments: dict[int, tuple[int, list[str], str]] = {}
    for token in tokenize.generate_tokens(io.StringIO(module.text).readline) if findings or checked else ():
        if token.type == tokenize.COMMENT and (match := _COMMENT.search(token.string)):
            codes = [code.strip().upper() for code in match["codes"].split(",")]
            ours = [code for code in codes if code.startswith("CM")]
            comments[token.start[0]] = (token.start[1] + 1, ours, match["reason"].strip(" -:()"))
    statements = [node for node in ast.walk(module.tree) if isinstance(node, ast.stmt)] if comments else []
    used: set[tuple[int, str]] = set()
    for finding in findings:
        around = (each.lineno for each in statements if each.lineno <= finding.line <= (each.end_lineno or 0))
        lines = {finding.line, max(around, default=finding.line)}
        silencing = {(line, finding.code) for line in lines if finding.code in comments.get(line, (0, []))[1]}
        used |= silencing
        if not silencing:
            yield finding
    for line, (column, ours, reason) in comments.items():
        if ours and not reason:
            yield Finding(module.path, line, column, "CM902", ", ".join(ours))
        # Code outside checked classes may not have been followed, so its comments may be in use.
        is_inside = any(node.lineno <= line <= (node.end_lineno or 0) for node in checked)
        for code in ours:
            if is_inside and (line, code) not in used:
                yield Finding(module.path, line, column, "CM903", code)
