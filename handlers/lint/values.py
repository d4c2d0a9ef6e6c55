"""What an expression may evaluate to, as far as can be told without running it.

Where several values are possible all are kept, so that each is checked: a value is what *may* be there.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property

from handlers.lint.source import Bindings, FunctionNode, SourceModule, bindings_of

# A value of which nothing is known but its owner: the base of all other values.


class Owner(Enum):
    """What a shared value belongs to; a value without an owner was created by the call that is followed."""

    STATE = "state"
    MESSAGE = "message"
    MODULE = "module"
    CLASS = "class"
    DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class Value:
    """Any value; only its owner may be known."""

    owner: Owner | None = field(default=None, kw_only=True)


UNKNOWN = Value()


# The arguments of a call.


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


# Definitions of the user's: functions and classes, with the scope that contains them.


class Scope:
    """The names of a module, class body or function while it is followed."""

    def __init__(
        self, module: SourceModule, parent: Scope | None = None, *, function: FunctionDefinition | None = None
    ) -> None:
        self.module = module
        self.parent = parent
        self.function = function
        self.body_of: ClassDefinition | None = None
        self.names: dict[str, Value] = {}
        self.globals: set[str] = set()
        self.nonlocals: set[str] = set()
        self.returned: list[Value] = []
        self.yielded: list[Value] = []

    def child(self) -> Scope:
        """Return a scope within this one, of the same function: that of a comprehension."""
        return Scope(self.module, self, function=self.function)

    def local(self, name: str) -> Value | None:
        """Return the value of a name in this or an enclosing scope, None when none of them has it."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names and name not in scope.globals:
                return scope.names[name]
            if name in scope.globals:
                return None
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
    """A function, method or lambda of the user's."""

    def __init__(self, node: FunctionNode, scope: Scope, owner: ClassDefinition | None = None) -> None:
        self.node = node
        self.scope = scope
        self.owner = owner
        own_name = "lambda" if isinstance(node, ast.Lambda) else node.name
        self.name = f"{owner.name}.{own_name}" if owner else own_name

    @property
    def module(self) -> SourceModule:
        """The module that contains it."""
        return self.scope.module

    @property
    def is_shared(self) -> bool:
        """Whether it is defined at the top of a module or class, so that all messages share it."""
        return self.scope.function is None

    @property
    def decorators(self) -> list[ast.expr]:
        """Its decorators, the uppermost first."""
        return [] if isinstance(self.node, ast.Lambda) else self.node.decorator_list

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


class ClassDefinition:
    """A class of the user's. `mro` is filled in when its bases are first looked up."""

    def __init__(self, node: ast.ClassDef, scope: Scope) -> None:
        self.node = node
        self.scope = scope
        self.name = node.name
        self.mro: tuple[ClassDefinition | str, ...] = ()
        self._functions: dict[ast.AST, FunctionDefinition] = {}

    @property
    def module(self) -> SourceModule:
        """The module that contains it."""
        return self.scope.module

    @cached_property
    def bindings(self) -> Bindings:
        """The names of its body."""
        return bindings_of(self.node.body)

    @cached_property
    def body_scope(self) -> Scope:
        """The scope of its body, which its methods do not see."""
        scope = Scope(self.module, self.scope)
        scope.body_of = self
        return scope

    def function(self, node: FunctionNode) -> FunctionDefinition:
        """Return a method by its syntax tree, the same definition each time."""
        return self._functions.setdefault(node, FunctionDefinition(node, self.scope, self))


# The kinds of values: literals, the user's definitions and instances, library names, collections.


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


TEXT = Instance("builtins.str")
NUMBER = Instance("builtins.int")
FLOAT = Instance("builtins.float")


# Operations on values: joining what is possible, the members of collections, types and owners.

_MOST_OPTIONS = 8
_DEEPEST = 4
_SETS = ("set", "frozenset")
_VIEWS = ("keys", "items")


def options(value: Value) -> tuple[Value, ...]:
    """Return the possible values."""
    return value.options if isinstance(value, OneOf) else (value,)


def join(*values: Value) -> Value:
    """Return a value that may be any of those given; an unknown one adds nothing to known ones."""
    found = dict.fromkeys(option for value in values for option in options(value))
    known = [value for value in found if value not in (UNKNOWN, Constant(None))]
    if len(known) > 1:
        return OneOf(tuple(known[:_MOST_OPTIONS]))
    return known[0] if known else next(iter(found), UNKNOWN)


def owned(value: Value, owner: Owner | None) -> Value:
    """Return the value as one that belongs to the owner."""
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
    if _depth(element) >= _DEEPEST or any(_depth(part) >= _DEEPEST for part in (*parts, item or UNKNOWN)):
        element, item, parts = UNKNOWN, None, ()
    return Collection(kind, element, element if item is None else item, unordered or kind in _SETS, parts)


def row(*parts: Value) -> Collection:
    """Return a tuple of known members."""
    return collection("tuple", join(*parts) if parts else UNKNOWN, parts=parts)


def sets(value: Value) -> Iterator[Collection]:
    """Yield the sets that a value may be."""
    for option in options(value):
        if isinstance(option, Collection) and option.kind in _SETS:
            yield option


def is_unordered(value: Value) -> bool:
    """Return whether the order of iterating over a value may differ between processes."""
    return any(isinstance(option, Collection) and option.unordered for option in options(value))


def makes_set(value: Value) -> bool:
    """Return whether `&` and `|` of a value return a set: those of a dict's views do too."""
    return any(
        isinstance(option, Collection) and option.kind in (*_SETS, *_VIEWS) for option in options(value)
    )


def element_of(value: Value) -> Value:
    """Return what iterating over a value yields."""
    return join(*(_element(option) for option in options(value)))


def item_of(value: Value) -> Value:
    """Return what a subscript of a value returns."""
    return join(
        *(
            owned(option.item, option.owner) if isinstance(option, Collection) else Value(owner=option.owner)
            for option in options(value)
        )
    )


def is_float(value: Value) -> bool:
    """Return whether a value may be a float."""
    return any(type_name(option) == "builtins.float" for option in options(value))


def type_name(value: Value) -> str:
    """Return the full name of the value's type, empty when it is unknown or the user's."""
    if isinstance(value, Instance):
        return value.of
    if isinstance(value, Constant):
        return f"builtins.{type(value.value).__name__}"
    if isinstance(value, Collection):
        return f"builtins.{value.kind}"
    return ""


def _element(value: Value) -> Value:
    if isinstance(value, Collection):
        return owned(value.element, value.owner)
    if type_name(value) == "builtins.str":
        return TEXT
    return Value(owner=value.owner)


def _depth(value: Value) -> int:
    if isinstance(value, OneOf):
        return max(map(_depth, value.options))
    if isinstance(value, Collection):
        return 1 + max(map(_depth, (value.element, value.item, *value.parts)))
    if isinstance(value, Partial):
        return 1 + max(map(_depth, (value.function, *value.positional)))
    if isinstance(value, Method):
        return 1 + _depth(value.receiver)
    return 0


__all__ = [
    "FLOAT",
    "NUMBER",
    "TEXT",
    "UNKNOWN",
    "Accessor",
    "Arguments",
    "Class",
    "ClassDefinition",
    "Collection",
    "Constant",
    "External",
    "Function",
    "FunctionDefinition",
    "Instance",
    "Method",
    "Object",
    "OneOf",
    "Owner",
    "Package",
    "Partial",
    "Scope",
    "Super",
    "Value",
    "collection",
    "element_of",
    "fresh",
    "is_float",
    "is_unordered",
    "item_of",
    "join",
    "makes_set",
    "options",
    "owned",
    "row",
    "sets",
    "type_name",
]
