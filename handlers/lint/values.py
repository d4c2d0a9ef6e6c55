"""What an expression may evaluate to, as far as can be told without running it; scopes, functions and classes.

Where several values are possible all are kept, so that each is checked: a value is what *may* be there.
"""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from typing import Self

from handlers.lint.rules import Finding, excerpt
from handlers.lint.source import Binding, Bindings, FunctionNode, Modules, SourceModule, bindings_of


class Owner(Enum):
    """What a shared value belongs to, each with the code of the rule that its mutation breaks.

    A value without an owner was created by the call that is followed.
    """

    STATE = "CM806"
    MESSAGE = "CM807"
    MODULE = "CM801"
    CLASS = "CM802"
    DEFAULT = "CM803"


@dataclass(frozen=True, slots=True)
class Value:
    """Any value; only its owner may be known."""

    owner: Owner | None = field(default=None, kw_only=True)


@dataclass(frozen=True, slots=True)
class Constant(Value):
    """A literal."""

    value: object


@dataclass(frozen=True, slots=True)
class External(Value):
    """A module, class or function of a library, by its full name: `datetime.datetime.now`."""

    name: str


@dataclass(frozen=True, slots=True)
class Instance(Value):
    """An instance of a class of a library, by the full name of the class."""

    of: str


@dataclass(frozen=True, slots=True)
class Package(Value):
    """A module of the user's."""

    module: SourceModule


@dataclass(frozen=True, slots=True)
class Class(Value):
    """A class of the user's."""

    definition: ClassDefinition


@dataclass(frozen=True, slots=True)
class Object(Value):
    """An instance of a class of the user's."""

    definition: ClassDefinition


@dataclass(frozen=True, slots=True)
class Super(Value):
    """The result of `super()` within a method: the bases after a class, for an object."""

    after: ClassDefinition
    bound: Value


@dataclass(frozen=True, slots=True)
class Function(Value):
    """A function, method or lambda of the user's; `bound` is the `self` or `cls` of a bound method."""

    definition: FunctionDefinition
    bound: Value | None = None


@dataclass(frozen=True, slots=True)
class Method(Value):
    """An attribute, most often a method, of a value whose class is not the user's."""

    receiver: Value
    name: str


@dataclass(frozen=True, slots=True)
class Partial(Value):
    """A `functools.partial`: a callable with its first arguments."""

    function: Value
    positional: tuple[Value, ...] = ()


@dataclass(frozen=True, slots=True)
class Accessor(Value):
    """The result of `operator.attrgetter` or `methodcaller`: reads an attribute of its argument, or calls it."""

    name: str
    calls: bool


@dataclass(frozen=True, slots=True)
class Collection(Value):
    """A list, tuple, set, frozenset, dict or iterator.

    `element` is what iterating yields, `item` what a subscript returns; `parts` are the members of a tuple of
    known length; `unordered` says that the order of iteration may differ between processes.
    """

    kind: str
    element: Value = field(default_factory=Value)
    item: Value = field(default_factory=Value)
    unordered: bool = False
    parts: tuple[Value, ...] = ()


@dataclass(frozen=True, slots=True)
class OneOf(Value):
    """One of several values."""

    options: tuple[Value, ...]


UNKNOWN = Value()
TEXT = Instance("builtins.str")
NUMBER = Instance("builtins.int")
FLOAT = Instance("builtins.float")

_MOST_OPTIONS = 8
_DEEPEST_NESTING = 4
_SETS = ("set", "frozenset")


def options(value: Value) -> tuple[Value, ...]:
    """Return the possible values."""
    return value.options if isinstance(value, OneOf) else (value,)


def join(*values: Value) -> Value:
    """Return a value that may be any of those given, unknown without any; an unknown one adds nothing to known ones."""
    found = dict.fromkeys(option for value in values for option in options(value))
    known = [value for value in found if value not in (UNKNOWN, Constant(None))]
    if len(known) > 1:
        return OneOf(tuple(known[:_MOST_OPTIONS]))
    return known[0] if known else next(iter(found), UNKNOWN)


def owned(value: Value, owner: Owner | None) -> Value:
    """Return the value as one that belongs to the owner, unchanged without an owner."""
    if isinstance(value, OneOf):
        return OneOf(tuple(owned(option, owner) for option in value.options))
    return value if owner is None or value.owner is owner else replace(value, owner=owner)


def fresh(value: Value) -> Value:
    """Return an unshared copy of the value."""
    if isinstance(value, OneOf):
        return OneOf(tuple(map(fresh, value.options)))
    return replace(value, owner=None)


def collection(
    kind: str,
    element: Value = UNKNOWN,
    *,
    item: Value | None = None,
    unordered: bool = False,
    parts: tuple[Value, ...] = (),
) -> Collection:
    """Return a collection; when it is nested too deeply, its members are unknown."""
    if max(map(_depth, (element, item or UNKNOWN, *parts))) >= _DEEPEST_NESTING:
        element, item, parts = UNKNOWN, None, ()
    return Collection(kind, element, element if item is None else item, unordered or kind in _SETS, parts)


def row(*parts: Value) -> Collection:
    """Return a tuple of known members."""
    return collection("tuple", join(*parts), parts=parts)


def sets(value: Value) -> list[Collection]:
    """Return the sets that a value may be."""
    return [each for each in options(value) if isinstance(each, Collection) and each.kind in _SETS]


def is_unordered(value: Value) -> bool:
    """Return whether the order of iterating over a value may differ between processes."""
    return any(isinstance(option, Collection) and option.unordered for option in options(value))


def makes_set(value: Value) -> bool:
    """Return whether `&` and `|` of a value return a set: those of a dict's views do too."""
    kinds = (*_SETS, "keys", "items")
    return any(isinstance(option, Collection) and option.kind in kinds for option in options(value))


def element_of(value: Value) -> Value:
    """Return what iterating over a value yields."""
    return join(*(
        owned(option.element, option.owner) if isinstance(option, Collection)
        else TEXT if type_name(option) == "builtins.str"
        else Value(owner=option.owner)
        for option in options(value)
    ))  # fmt: skip


def item_of(value: Value) -> Value:
    """Return what a subscript of a value returns."""
    return join(*(
        owned(option.item, option.owner) if isinstance(option, Collection) else Value(owner=option.owner)
        for option in options(value)
    ))  # fmt: skip


def is_float(value: Value) -> bool:
    """Return whether a value may be a float."""
    return any(type_name(option) == "builtins.float" for option in options(value))


def type_name(value: Value) -> str:
    """Return the full name of the value's type, empty when it is unknown or the user's."""
    match value:
        case Instance():
            return value.of
        case Constant():
            return f"builtins.{type(value.value).__name__}"
        case Collection():
            return f"builtins.{value.kind}"
    return ""


def _depth(value: Value) -> int:
    match value:
        case OneOf():
            return max(map(_depth, value.options))
        case Collection():
            return 1 + max(map(_depth, (value.element, value.item, *value.parts)))
        case Partial():
            return 1 + max(map(_depth, (value.function, *value.positional)))
        case Method():
            return 1 + _depth(value.receiver)
    return 0


@dataclass(frozen=True, slots=True)
class Arguments:
    """The arguments of a call; `is_open` when a starred argument may add more."""

    positional: tuple[Value, ...] = ()
    named: tuple[tuple[str, Value], ...] = ()
    is_open: bool = False

    def __iter__(self) -> Iterator[Value]:
        yield from self.positional
        yield from (value for _, value in self.named)

    def first(self) -> Value:
        """Return the first argument, unknown when there is none."""
        return self.positional[0] if self.positional else UNKNOWN

    def get(self, position: int, name: str) -> Value | None:
        """Return an argument by its position or name, None when it is not given."""
        if position < len(self.positional):
            return self.positional[position]
        return dict(self.named).get(name, UNKNOWN if self.is_open else None)

    def after(self, *first: Value) -> Arguments:
        """Return the same arguments with others before them."""
        return Arguments((*first, *self.positional), self.named, self.is_open)


_DEEPEST_CALLS = 30
_RE_ENTRIES = 2
_ALLOWED_AT_IMPORT = frozenset({"CM801", "CM802", "CM803", "CM808"})


class Checker:
    """What all scopes share: modules, definitions, the chain of calls that leads to the present place, findings.

    `known` holds the values of names and calls that were followed already, and `counts` how often.
    """

    def __init__(self, scopes: type[Scope]) -> None:
        self.modules = Modules()
        self.findings: dict[Hashable, Finding] = {}
        self.known: dict[Hashable, Value] = {}
        self.counts: dict[Hashable, int] = {}
        self.classes: dict[ast.ClassDef, ClassDefinition] = {}
        self.functions: dict[ast.AST, FunctionDefinition] = {}
        self.quiet = 0
        self.is_importing = False
        self._scopes = scopes
        self._tops: dict[SourceModule, Scope] = {}
        self._chain: list[tuple[str, ast.AST]] = []
        self._first_module: SourceModule | None = None

    def top(self, module: SourceModule) -> Scope:
        """Return the scope at the top of a module, the same one each time."""
        return self._tops.setdefault(module, self._scopes(self, module))

    def report(self, code: str, node: ast.AST, module: SourceModule, what: str | None) -> None:
        """Report a broken rule, once for each place."""
        if self.quiet or (self.is_importing and code in _ALLOWED_AT_IMPORT):
            return
        line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0) + 1
        key = (module.path, line, column, code)
        if key not in self.findings:
            chain = tuple(label for label, _ in self._chain)
            what = excerpt(node) if what is None else what
            self.findings[key] = Finding(module.path, line, column, code, what, chain)

    @property
    def mode(self) -> Hashable:
        """What is reported now: what was followed in one mode may have to be followed again in another."""
        return self.quiet > 0, self.is_importing

    @contextmanager
    def importing(self) -> Iterator[None]:
        """Follow within the block what runs while modules are imported, when changing them is allowed."""
        before, self.is_importing = self.is_importing, True
        try:
            yield
        finally:
            self.is_importing = before

    @contextmanager
    def within(self, label: str, node: ast.AST, module: SourceModule) -> Iterator[None]:
        """Add a function or name to the chain of calls within the block."""
        if not self._chain:
            self._first_module = module
        prefix = "" if module is self._first_module else f"{module.name.rpartition('.')[2]}."
        self._chain.append((f"{prefix}{label}", node))
        try:
            yield
        finally:
            self._chain.pop()

    def is_too_deep(self, node: ast.AST) -> bool:
        """Return whether a function calls itself again, or the calls go too deep to be followed."""
        return (
            len(self._chain) >= _DEEPEST_CALLS or sum(each is node for _, each in self._chain) >= _RE_ENTRIES
        )


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
        function: FunctionDefinition | None = None,
        body_of: ClassDefinition | None = None,
    ) -> None:
        self.checker = checker
        self.module = module
        self.parent = parent
        self.function = function
        self.body_of = body_of
        self.names: dict[str, Value] = {}
        self.globals: set[str] = set()
        self.nonlocals: set[str] = set()
        self.returned: list[Value] = []
        self.yielded: list[Value] = []

    @abstractmethod
    def evaluate(self, node: ast.expr) -> Value:
        """Return the possible values of an expression, and report what is wrong in it."""

    @abstractmethod
    def execute(self, body: list[ast.stmt]) -> None:
        """Follow statements, and report what is wrong in them."""

    @abstractmethod
    def call(self, callee: Value, arguments: Arguments, node: ast.AST) -> Value:
        """Return the possible results of a call, and report what is wrong in what is called."""

    def quietly(self, node: ast.expr) -> Value:
        """Return the possible values of an expression, and report nothing."""
        self.checker.quiet += 1
        try:
            return self.evaluate(node)
        finally:
            self.checker.quiet -= 1

    def report(self, code: str, node: ast.AST, what: str | None = None) -> None:
        """Report a broken rule; `what` is the source of the node unless it is given."""
        self.checker.report(code, node, self.module, what)

    def inside(
        self, *, function: FunctionDefinition | None = None, body_of: ClassDefinition | None = None
    ) -> Self:
        """Return a scope within this one."""
        return type(self)(self.checker, self.module, self, function=function, body_of=body_of)

    def class_of(self, node: ast.ClassDef) -> ClassDefinition:
        """Return the definition of a class, the same one each time."""
        return self.checker.classes.setdefault(node, ClassDefinition(node, self))

    def function_of(self, node: FunctionNode) -> FunctionDefinition:
        """Return the definition of a function at the top of a module or class, the same one each time."""
        return self.checker.functions.setdefault(node, FunctionDefinition(node, self))

    def local(self, name: str) -> Value | None:
        """Return the value of a name in this or an enclosing scope, None when none of them has it."""
        scope: Scope | None = self
        while scope is not None and name not in scope.globals:
            if name in scope.names:
                return scope.names[name]
            scope = scope.parent
        return None

    def bind(self, name: str, value: Value) -> None:
        """Bind a name to a value from here on."""
        scope: Scope | None = self.parent if name in self.nonlocals else self
        while scope is not None and name in self.nonlocals and name not in scope.names:
            scope = scope.parent
        (scope or self).names[name] = value

    def is_global(self, name: str) -> bool:
        """Return whether this or an enclosing scope declares a name `global`."""
        return name in self.globals or (self.parent is not None and self.parent.is_global(name))


class FunctionDefinition:
    """A function, method or lambda of the user's, with the scope that contains it."""

    def __init__(self, node: FunctionNode, scope: Scope, owner: ClassDefinition | None = None) -> None:
        self.node = node
        self.scope = scope
        self.owner = owner
        own_name = "lambda" if isinstance(node, ast.Lambda) else node.name
        self.name = f"{owner.name}.{own_name}" if owner else own_name

    @property
    def is_shared(self) -> bool:
        """Whether it is defined at the top of a module or class, so that all messages share it."""
        return self.scope.function is None

    @cached_property
    def is_generator(self) -> bool:
        """Whether calling it returns an iterator."""
        pending: list[ast.AST] = list(ast.iter_child_nodes(self.node))
        while pending:
            node = pending.pop()
            if isinstance(node, ast.Yield | ast.YieldFrom):
                return True
            if not isinstance(node, FunctionNode | ast.ClassDef):
                pending.extend(ast.iter_child_nodes(node))
        return False


MODELS: frozenset[object] = frozenset(
    {"pydantic.BaseModel", "handlers.State", "handlers.Message", "typing.NamedTuple"}
)
"""Bases that make fields of the annotated names in a class body."""


class ClassDefinition:
    """A class of the user's, with the scope that contains it."""

    def __init__(self, node: ast.ClassDef, scope: Scope) -> None:
        self.node = node
        self.scope = scope
        self.name = node.name
        self._functions: dict[ast.AST, FunctionDefinition] = {}

    @cached_property
    def bindings(self) -> Bindings:
        """The names of its body."""
        return bindings_of(self.node.body)

    @cached_property
    def body_scope(self) -> Scope:
        """The scope of its body, which its methods do not see."""
        return self.scope.inside(body_of=self)

    def function(self, node: FunctionNode) -> FunctionDefinition:
        """Return a method by its syntax tree, the same definition each time."""
        return self._functions.setdefault(node, FunctionDefinition(node, self.scope, self))

    @cached_property
    def mro(self) -> list[ClassDefinition | str]:
        """The class and its bases, nearest first; those that are not the user's by their full name."""
        found: dict[ClassDefinition | str, None] = {}

        def collect(definition: ClassDefinition) -> None:
            if definition in found:
                return
            found[definition] = None
            for node in definition.node.bases:
                base = definition.scope.quietly(node.value if isinstance(node, ast.Subscript) else node)
                for option in options(base):
                    if isinstance(option, Class):
                        collect(option.definition)
                    elif isinstance(option, External):
                        found[option.name] = None

        collect(self)
        return list(found)

    @property
    def users_mro(self) -> list[ClassDefinition]:
        """The class and those of its bases that are the user's, nearest first."""
        return [base for base in self.mro if isinstance(base, ClassDefinition)]

    @property
    def is_record(self) -> bool:
        """Whether annotated names in its body are fields of its instances."""
        return not MODELS.isdisjoint(self.mro) or any(
            mark.endswith(("dataclass", "attr.s", "define")) for mark in _marks(self.node, self.scope)
        )

    def members(self, name: str) -> list[tuple[ClassDefinition, Binding]]:
        """Return what a name is bound to in the class, or in the nearest base that has it."""
        for base in self.users_mro:
            if name in base.bindings.names:
                return [(base, binding) for binding in base.bindings.names[name]]
        return []

    def marks_of(self, method: FunctionNode) -> list[str]:
        """Return the full names of a method's decorators that are not the user's."""
        return [] if isinstance(method, ast.Lambda) else _marks(method, self.body_scope)


def _marks(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef, scope: Scope) -> list[str]:
    values = [
        scope.quietly(each.func if isinstance(each, ast.Call) else each) for each in node.decorator_list
    ]
    return [option.name for value in values for option in options(value) if isinstance(option, External)]
