"""The kinds of values: literals, the user's definitions and instances, library names, collections."""

from __future__ import annotations

from dataclasses import dataclass, field

from handlers.lint.source.modules import SourceModule
from handlers.lint.values.definitions import ClassDefinition, FunctionDefinition
from handlers.lint.values.value import Value


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
