"""What an expression may evaluate to, as far as can be told without running it; and the names of a scope.

A value is a tuple of options: each of them may be there, so each is checked. About an empty value nothing is known.
"""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from typing import Self

from handlers.lint.rules import Finding, excerpt
from handlers.lint.source import Binding, FunctionNode, Modules, SourceModule, bindings_of


class Owner(Enum):
    """What a shared value belongs to, each with the code of the rule that its mutation breaks."""

    STATE = "CM806"
    MESSAGE = "CM807"
    MODULE = "CM801"
    CLASS = "CM802"
    DEFAULT = "CM803"


class Option:
    """One of the things that may be there. What the call that is followed has created has no `owner`."""

    __slots__ = ()

    @property
    def owner(self) -> Owner | None:
        """What it belongs to, if messages share it."""
        return None


@dataclass(frozen=True, slots=True)
class Instance(Option):
    """An instance of a class of the user's, or of a library's by its full name; "" when its class is not known.

    `element` is what iterating over it yields, `item` what a subscript returns, `parts` the members of a tuple of known
    length. The order of what `is_unordered` may differ between processes. `super()` begins `after` a class.
    """

    of: str | Class = ""
    owner: Owner | None = None
    literal: object = None
    element: Value = ()
    item: Value = ()
    parts: tuple[Value, ...] = ()
    is_unordered: bool = False
    depth: int = 0
    after: Class | None = None


@dataclass(frozen=True, slots=True)
class External(Option):
    """A module, class or function of a library, by its full name; `bound` are its first arguments, as of a partial."""

    name: str
    bound: tuple[Value, ...] = ()


@dataclass(frozen=True, slots=True)
class Package(Option):
    """A module of the user's."""

    module: SourceModule
    owner = Owner.MODULE


@dataclass(frozen=True, slots=True)
class Function(Option):
    """A function, method or lambda of the user's; `bound` are its first arguments, as the `self` of a method."""

    node: FunctionNode
    scope: Scope
    of: Class | None = None
    bound: tuple[Value, ...] = ()

    @property
    def owner(self) -> Owner | None:
        """All messages share what is defined at the top of a module or class."""
        return Owner.MODULE if self.scope.function is None and not self.bound else None

    @property
    def name(self) -> str:
        """The name by which a chain of calls shows it."""
        return ".".join(([self.of.name] if self.of else []) + [getattr(self.node, "name", "lambda")])


@dataclass(frozen=True, slots=True)
class Attribute(Option):
    """An attribute, most often a method, of something whose class is not the user's."""

    receiver: Option
    name: str

    @property
    def owner(self) -> Owner | None:
        """That of an object; attributes of classes and functions are most often methods."""
        return self.receiver.owner if isinstance(self.receiver, Instance) else None


MODELS = frozenset({"pydantic.BaseModel", "handlers.State", "handlers.Message", "typing.NamedTuple"})
"""Bases that make fields of the annotated names in a class body."""


class Class(Option):
    """A class of the user's, with the scope that contains it; `assigned` is what methods assigned to attributes."""

    owner = Owner.CLASS

    def __init__(self, node: ast.ClassDef, scope: Scope) -> None:
        self.node, self.scope, self.name = node, scope, node.name
        self.bindings = bindings_of(node.body)
        self.body_scope = scope.inside(body_of=self)
        self.assigned: dict[str, Value] = {}

    @cached_property
    def mro(self) -> list[Class | str]:
        """The class and its bases, nearest first; those that are not the user's by their full name."""
        found: dict[Class | str, None] = {}

        def collect(class_: Class) -> None:
            found[class_] = None
            for node in class_.node.bases:
                for option in class_.scope.quietly(node.value if isinstance(node, ast.Subscript) else node):
                    if isinstance(option, External):
                        found[option.name] = None
                    elif isinstance(option, Class) and option not in found:
                        collect(option)

        collect(self)
        return list(found)

    @property
    def users_mro(self) -> list[Class]:
        """The class and those of its bases that are the user's, nearest first."""
        return [base for base in self.mro if isinstance(base, Class)]

    @property
    def is_record(self) -> bool:
        """Whether annotated names in its body are fields of its instances."""
        ends = ("dataclass", "attr.s", "define")
        return not MODELS.isdisjoint(self.mro) or any(
            each.endswith(ends) for each in marks(self.node, self.scope)
        )

    def members(self, name: str, after: Class | None = None) -> list[tuple[Class, Binding]]:
        """Return what a name is bound to in the class or its nearest base that has it, of those after a class."""
        bases = self.users_mro
        for base in bases[bases.index(after) + 1 :] if after in bases else bases:
            if name in base.bindings:
                return [(base, binding) for binding in base.bindings[name]]
        return []

    def function(self, node: FunctionNode, *bound: Value) -> Function:
        """Return a method; it does not see the other names of the body."""
        return Function(node, self.scope, self, bound)


def marks(node: ast.AST, scope: Scope) -> list[str]:
    """Return the full names of the decorators that are not the user's."""
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    found = (scope.quietly(each.func if isinstance(each, ast.Call) else each) for each in decorators)
    return [option.name for value in found for option in value if isinstance(option, External)]


Value = tuple[Option, ...]

NONE = Instance("builtins.NoneType")
TEXT: Value = (Instance("builtins.str"),)
FLOAT: Value = (Instance("builtins.float"),)

_MOST_OPTIONS = 8
_DEEPEST_NESTING = 4


def join(*values: Value) -> Value:
    """Return a value that may be any of those given; None adds nothing to others."""
    found = dict.fromkeys(option for value in values for option in value)
    known = tuple(option for option in found if option != NONE)[:_MOST_OPTIONS]
    return known or (tuple(found) if all(values) else ())


def instance(of: str | Class, owner: Owner | None = None) -> Value:
    """Return an instance of a class."""
    return (Instance(of, owner),)


def literal(value: object) -> Value:
    """Return the value of a literal."""
    return (Instance(f"builtins.{type(value).__name__}", literal=value),)


def is_literal(option: Option) -> bool:
    """Return whether an option is a literal in the source."""
    return option == NONE or (isinstance(option, Instance) and option.literal is not None)


def text_of(value: Value | None) -> str | None:
    """Return a text that is a literal in the source, None for anything else."""
    match value:
        case (Instance(literal=str(text)),):
            return text
    return None


def collection(
    kind: str,
    element: Value = (),
    item: Value | None = None,
    *,
    parts: Sequence[Value] = (),
    unordered: bool = False,
) -> Value:
    """Return a collection of Python's own; when it is nested too deeply, its members are unknown."""
    members = (element, item or (), *parts)
    depth = 1 + max(getattr(option, "depth", 0) for value in members for option in (*value, NONE))
    if depth > _DEEPEST_NESTING:
        element, item, parts, depth = (), None, (), 1
    item = element if item is None else item
    is_unordered = unordered or kind in {"set", "frozenset"}
    return (Instance(f"builtins.{kind}", None, None, element, item, tuple(parts), is_unordered, depth),)


def row(*parts: Value) -> Value:
    """Return a tuple of known members."""
    return collection("tuple", join(*parts), parts=parts)


def owned(value: Value, owner: Owner | None) -> Value:
    """Return the value as one that belongs to the owner, unchanged without an owner."""
    return (_with_owner(value, owner) or (Instance(owner=owner),)) if owner else value


def fresh(value: Value) -> Value:
    """Return an unshared copy of the value."""
    return _with_owner(value, None)


def _with_owner(value: Value, owner: Owner | None) -> Value:
    return tuple(
        replace(each, owner=owner) if isinstance(each, Instance) and not is_literal(each) else each
        for each in value
    )


def type_name(option: Option) -> str:
    """Return the full name of an option's class, empty when it is unknown or the user's."""
    return option.of if isinstance(option, Instance) and isinstance(option.of, str) else ""


def has_type(value: Value, *names: str) -> bool:
    """Return whether a value may be an instance of a class of Python's own."""
    return any(type_name(option).removeprefix("builtins.") in names for option in value)


def is_unordered(value: Value) -> bool:
    """Return whether the order of iterating over a value may differ between processes."""
    return any(isinstance(option, Instance) and option.is_unordered for option in value)


def element_of(value: Value) -> Value:
    """Return what iterating over a value yields."""
    return join(*(TEXT if type_name(each) == "builtins.str" else _member(each, "element") for each in value))


def item_of(value: Value) -> Value:
    """Return what a subscript of a value returns."""
    return join(*(_member(option, "item") for option in value))


def _member(option: Option, name: str) -> Value:
    return owned(getattr(option, name, ()), option.owner)


@dataclass(frozen=True, slots=True)
class Arguments:
    """The arguments of a call; `is_open` when a starred argument may add more."""

    positional: tuple[Value, ...] = ()
    named: tuple[tuple[str, Value], ...] = ()
    is_open: bool = False

    def __iter__(self) -> Iterator[Value]:
        yield from self.positional
        yield from (value for _, value in self.named)

    @property
    def first(self) -> Value:
        """The first argument, unknown when there is none."""
        return self.positional[0] if self.positional else ()

    def get(self, position: int, name: str) -> Value | None:
        """Return an argument by its position or name, None when it is not given."""
        if position < len(self.positional):
            return self.positional[position]
        return dict(self.named).get(name, () if self.is_open else None)

    def after(self, *bound: Value) -> Arguments:
        """Return the same arguments with others before them."""
        return replace(self, positional=(*bound, *self.positional))


OPEN = Arguments(is_open=True)

_DEEPEST_CALLS = 30
_RE_ENTRIES = 2
_ALLOWED_AT_IMPORT = frozenset({"CM801", "CM802", "CM803", "CM808"})


class Checker:
    """What all scopes share: modules, classes, the chain of calls that leads to the present place, findings.

    `known` holds the values of names and calls that were followed already, and `counts` how often, by `mode`: whether
    nothing is reported, and whether a module is imported.
    """

    def __init__(self, scopes: type[Scope]) -> None:
        self.modules = Modules()
        self.findings: dict[Hashable, Finding] = {}
        self.known: dict[Hashable, Value] = {}
        self.counts: dict[Hashable, int] = {}
        self.classes: dict[ast.ClassDef, Class] = {}
        self.mode = (False, False)
        self.scopes = scopes
        self.tops: dict[SourceModule, Scope] = {}
        self.chain: list[tuple[str, ast.AST, SourceModule]] = []

    def top(self, module: SourceModule) -> Scope:
        """Return the scope at the top of a module, the same one each time."""
        if module not in self.tops:
            self.tops[module] = self.scopes(self, module)
        return self.tops[module]

    @contextmanager
    def following(self, *, quietly: bool = False, importing: bool = False) -> Iterator[None]:
        """Report nothing within the block, or what may not run while modules are imported; that may change them."""
        before = self.mode
        self.mode = (before[0] or quietly, before[1] or importing)
        try:
            yield
        finally:
            self.mode = before

    @contextmanager
    def within(self, label: str, node: ast.AST, module: SourceModule) -> Iterator[None]:
        """Add a function or name to the chain of calls within the block."""
        self.chain.append((label, node, module))
        try:
            yield
        finally:
            self.chain.pop()

    def is_too_deep(self, node: ast.AST) -> bool:
        """Return whether a function calls itself again, or the calls go too deep to be followed."""
        times = sum(each is node for _, each, _ in self.chain)
        return len(self.chain) >= _DEEPEST_CALLS or times >= _RE_ENTRIES


class Scope(ABC):
    """The names of a module, class body or function while it is followed.

    Following is recursive: an expression holds calls, a call is of a function, a function has statements, and
    statements hold expressions. `interpreter.Interpreter` does it.
    """

    def __init__(
        self,
        checker: Checker,
        module: SourceModule,
        parent: Scope | None = None,
        *,
        function: Function | None = None,
        body_of: Class | None = None,
    ) -> None:
        self.checker, self.module, self.parent = checker, module, parent
        self.function, self.body_of = function, body_of
        self.names: dict[str, Value] = {}
        self.globals: set[str] = set()
        self.returned: list[Value] = []
        self.yielded: list[Value] = []

    @abstractmethod
    def evaluate(self, node: ast.expr) -> Value:
        """Return the possible values of an expression, and report what is wrong in it."""

    @abstractmethod
    def execute(self, body: Sequence[ast.stmt]) -> None:
        """Follow statements one after another: both branches of a condition, and loops twice."""

    @abstractmethod
    def call(self, callee: Value, arguments: Arguments, node: ast.AST) -> Value:
        """Return the possible results of a call, and report what is wrong in what is called."""

    def quietly(self, node: ast.expr) -> Value:
        """Return the possible values of an expression, and report nothing."""
        with self.checker.following(quietly=True):
            return self.evaluate(node)

    def report(self, code: str, node: ast.AST, what: str | None = None) -> None:
        """Report a broken rule, once for each place; `what` is the source of the node unless it is given."""
        (is_quiet, is_importing), chain = self.checker.mode, self.checker.chain
        line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0) + 1
        key = (self.module.path, line, column, code)
        if not (is_quiet or (is_importing and code in _ALLOWED_AT_IMPORT) or key in self.checker.findings):
            way = (name if each is chain[0][2] else f"{each.name}.{name}" for name, _, each in chain)
            self.checker.findings[key] = Finding(*key[:3], code, what or excerpt(node), tuple(way))

    def inside(self, *, function: Function | None = None, body_of: Class | None = None) -> Self:
        """Return a scope within this one."""
        return type(self)(self.checker, self.module, self, function=function, body_of=body_of)

    def class_of(self, node: ast.ClassDef) -> Class:
        """Return the class that a statement defines, the same one each time."""
        if node not in self.checker.classes:
            self.checker.classes[node] = Class(node, self)
        return self.checker.classes[node]

    def local(self, name: str) -> Value | None:
        """Return the value of a name in this or an enclosing scope, None when none of them has it."""
        if name in self.names or name in self.globals or self.parent is None:
            return None if name in self.globals else self.names.get(name)
        return self.parent.local(name)

    def is_global(self, name: str) -> bool:
        """Return whether this or an enclosing scope declares a name `global`."""
        return name in self.globals or (self.parent is not None and self.parent.is_global(name))
