"""The possible values of names and expressions, found without running code.

A `Value` is a tuple of alternatives (`Option`), each of which is checked. An empty tuple is an unknown value.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import sys
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cache, cached_property
from typing import Self

from handlers.lint import rules, source
from handlers.lint.rules import Finding, listed
from handlers.lint.source import Assigned, Binding, FunctionNode, Imported, Modules, SourceModule


class Owner(Enum):
    """The origin of objects that handlers must not mutate. A member's value is the code of the broken rule."""

    STATE = "CM806"
    MESSAGE = "CM807"
    MODULE = "CM801"
    CLASS = "CM802"
    DEFAULT = "CM803"


@dataclass(frozen=True, slots=True)
class Instance:
    """An object. `of` is a user's class, the full name of a library class, or "" if the class is unknown."""

    of: str | Class = ""
    owner: Owner | None = None
    literal: object = None
    element: Value = ()  # the values of its iteration
    item: Value = ()  # the values of its subscripts
    parts: tuple[Value, ...] = ()  # the members of a tuple of known length
    depth: int = 0  # how deeply collections are nested
    after: Class | None = None  # for `super()`: attributes are looked up in the bases after this class


@dataclass(frozen=True, slots=True)
class External:
    """A module, class or function of a library, by its full name. `bound` are the arguments that a partial binds."""

    name: str
    bound: tuple[Value, ...] = ()


@dataclass(frozen=True, slots=True)
class Package:
    module: SourceModule


@dataclass(frozen=True, slots=True)
class Function:
    """A user's function, method or lambda. `bound` are arguments that are already bound, such as `self`."""

    node: FunctionNode
    scope: Scope
    of: Class | None = None
    bound: tuple[Value, ...] = ()

    @property
    def name(self) -> str:
        return ".".join(([self.of.name] if self.of else []) + [getattr(self.node, "name", "lambda")])


@dataclass(frozen=True, slots=True)
class Attribute:
    """An attribute, usually a method, of an object whose class is unknown or from a library."""

    receiver: Option
    name: str


MODELS = frozenset({"pydantic.BaseModel", "handlers.State", "handlers.Message", "typing.NamedTuple"})
"""Bases whose subclasses have annotated names as fields."""
_RECORDS = ("dataclass", "attr.s", "define")


class Class:
    """A user's class. `scope` is the scope around the class statement."""

    def __init__(self, node: ast.ClassDef, scope: Scope) -> None:
        self.node, self.scope, self.name = node, scope, node.name
        self.bindings = source.bindings_of(node.body)
        self.body_scope = scope.inside(body_of=self)

    @cached_property
    def mro(self) -> list[Class | str]:
        """The class and its bases, nearest first. Library classes are full names."""
        order: dict[Class | str, None] = {}

        def collect(class_: Class) -> None:
            order[class_] = None
            for node in class_.node.bases:
                for option in class_.scope.quietly(node.value if isinstance(node, ast.Subscript) else node):
                    if isinstance(option, External):
                        order[option.name] = None
                    elif isinstance(option, Class) and option not in order:
                        collect(option)

        collect(self)
        return list(order)

    @property
    def users_mro(self) -> list[Class]:
        """The class and those of its bases that are in the user's modules, nearest first."""
        return [base for base in self.mro if isinstance(base, Class)]

    @property
    def is_record(self) -> bool:
        marks = self.scope.marks(self.node)
        return not MODELS.isdisjoint(self.mro) or any(mark.endswith(_RECORDS) for mark in marks)

    def members(self, name: str, after: Class | None = None) -> list[tuple[Class, Binding]]:
        """Return the bindings of a name in the nearest class that binds the name, each with that class.

        With `after`, only the bases after this class are searched.
        """
        bases = self.users_mro
        for base in bases[bases.index(after) + 1 :] if after in bases else bases:
            if name in base.bindings:
                return [(base, binding) for binding in base.bindings[name]]
        return []

    def function(self, node: FunctionNode, *bound: Value) -> Function:
        """Return a method of the class. `bound` are its first arguments."""
        return Function(node, self.scope, self, bound)  # a method does not see the names of the class body

    def value_of(self, option: Instance | Class, binding: Binding, node: ast.AST) -> Value:
        """Return the value of an attribute of `option`, read at `node`, that a binding in the class body defines."""
        if isinstance(binding, FunctionNode):
            marks = self.body_scope.marks(binding)
            receivers: list[Value] = [(replace(option, after=None),)] if isinstance(option, Instance) else []
            if "builtins.classmethod" in marks:
                receivers = [(class_of(option) or option,)]
            method = self.function(binding, *([] if "builtins.staticmethod" in marks else receivers))
            function = self.scope.decorated(method)
            is_getter = any(mark in _GETTERS or mark.endswith("cached_property") for mark in marks)
            return self.scope.call((method,), Arguments(), node) if is_getter and receivers else function
        if isinstance(option, Class) and "enum.Enum" in option.mro:
            return instance(option)
        annotation = binding.annotation if isinstance(binding, Assigned) and self.is_record else None
        if isinstance(option, Instance) and annotation:
            return owned(self.body_scope.annotated(annotation), option.owner)
        return self.body_scope.bound("", binding, Owner.CLASS)


Option = Instance | External | Package | Class | Function | Attribute
Value = tuple[Option, ...]

NONE = Instance("builtins.NoneType")
TEXT: Value = (Instance("builtins.str"),)
NUMBER: Value = (Instance("builtins.int"),)
FLOAT: Value = (Instance("builtins.float"),)

_MOST_OPTIONS = 8
_DEEPEST_NESTING = 4


def join(*values: Value) -> Value:
    """Join the alternatives of values, up to 8. `NONE` is kept only if it is alone and no value is unknown."""
    options = dict.fromkeys(option for value in values for option in value)
    known = tuple(option for option in options if option != NONE)[:_MOST_OPTIONS]
    return known or (tuple(options) if all(values) else ())


def instance(of: str | Class, owner: Owner | None = None) -> Value:
    return (Instance(of, owner),)


def literal(value: object) -> Value:
    return (Instance(f"builtins.{type(value).__name__}", literal=value),)


def is_literal(option: Option) -> bool:
    return option == NONE or (isinstance(option, Instance) and option.literal is not None)


def text_of(value: Value | None) -> str | None:
    match value:
        case (Instance(literal=str(text)),):
            return text
    return None


def collection(of: str, element: Value = (), item: Value | None = None, parts: Sequence[Value] = ()) -> Value:
    """Return a built-in collection or iterator. `of` is its type, or "unordered" for an iterator over a set.

    An iteration gives `element`, and a subscript gives `item`, by default `element`. `parts` are a tuple's members.
    """
    held = [each for value in (element, item or (), *parts) for each in value]
    depth = 1 + max((getattr(each, "depth", 0) for each in held), default=0)
    if depth > _DEEPEST_NESTING:
        element, item, parts, depth = (), None, (), 1  # its members are unknown
    item = element if item is None else item
    return (Instance(f"builtins.{of}", None, None, element, item, tuple(parts), depth),)


def row(*parts: Value) -> Value:
    return collection("tuple", join(*parts), parts=parts)


def owned(value: Value, owner: Owner | None) -> Value:
    """Return the value with `owner` as the owner of its instances. No-op if `owner` is None."""
    if owner is None:
        return value
    literals = [each for each in value if is_literal(each)]
    others = [each for each in value if each not in literals]
    shared = [replace(each, owner=owner) if isinstance(each, Instance) else each for each in others]
    return (*shared, *literals) or (Instance(owner=owner),)


def owner_of(option: Option) -> Owner | None:
    """Return the owner of an alternative, or None if the current call created the object."""
    match option:
        case Package():
            return Owner.MODULE
        case Class():
            return Owner.CLASS
        case Function(scope=scope, bound=()) if scope.function is None:
            return Owner.MODULE
        case Instance(owner=owner) | Attribute(receiver=Instance(owner=owner)):
            return owner
    return None


def fresh(value: Value) -> Value:
    """Return a value for copies of the objects, with the same types and members, but without owners and literals."""
    return tuple(replace(it, owner=None, literal=None) if isinstance(it, Instance) else it for it in value)


def type_name(option: Option) -> str:
    """Return the full name of the library class of an alternative, or "" for any other alternative."""
    return option.of if isinstance(option, Instance) and isinstance(option.of, str) else ""


def class_of(option: Option) -> Class | None:
    of = option.of if isinstance(option, Instance) else option
    return of if isinstance(of, Class) else None


def has_type(value: Value, *names: str) -> bool:
    return any(type_name(option).removeprefix("builtins.") in names for option in value)


def is_unordered(value: Value) -> bool:
    """Return whether the iteration order of a value may differ between processes."""
    return has_type(value, "set", "frozenset", "unordered")


def element_of(value: Value) -> Value:
    return join(*(TEXT if type_name(each) == "builtins.str" else _member(each, "element") for each in value))


def item_of(value: Value) -> Value:
    return join(*(_member(option, "item") for option in value))


def _member(option: Option, name: str) -> Value:
    return owned(getattr(option, name, ()), owner_of(option))


@dataclass(frozen=True, slots=True)
class Arguments:
    """The arguments of a call. `is_open`: a starred argument may add more arguments."""

    positional: tuple[Value, ...] = ()
    named: tuple[tuple[str, Value], ...] = ()
    is_open: bool = False

    def __iter__(self) -> Iterator[Value]:
        yield from self.positional
        yield from (value for _, value in self.named)

    @property
    def first(self) -> Value:
        return self.positional[0] if self.positional else ()

    def get(self, position: int, name: str) -> Value | None:
        if position < len(self.positional):
            return self.positional[position]
        return dict(self.named).get(name, () if self.is_open else None)

    def after(self, *bound: Value) -> Arguments:
        return replace(self, positional=(*bound, *self.positional))


OPEN = Arguments(is_open=True)

KINDS = {
    **dict.fromkeys(listed("builtins.set typing.{Set MutableSet}"), "set"),
    **dict.fromkeys(listed("builtins.frozenset typing.{AbstractSet FrozenSet}"), "frozenset"),
    **dict.fromkeys(listed("builtins.list typing.{List Sequence MutableSequence Collection Deque}"), "list"),
    **dict.fromkeys(listed("builtins.tuple typing.Tuple"), "tuple"),
    **dict.fromkeys(listed("builtins.dict typing.{Dict Mapping MutableMapping DefaultDict Counter}"), "dict"),
    **dict.fromkeys(listed("collections.{defaultdict OrderedDict Counter}"), "dict"),
    **dict.fromkeys(listed("typing.{Iterable Iterator Generator}"), "iterator"),
    "collections.deque": "list",
}
"""The kind of collection by generic type."""

CONTEXT = "handlers.Context"
_GETTERS = listed("builtins.property functools.cached_property pydantic.computed_field typing.override")
_FIRST = listed("typing.{Annotated Final ClassVar Optional Required NotRequired ReadOnly}")
"""Generic types whose first argument is the type of the value."""
_OF_INSTANCES: dict[str, Value] = {
    f"{CONTEXT}.now": instance("datetime.datetime"),
    f"{CONTEXT}.random": instance("random.Random"),
    **dict.fromkeys(listed("handlers.Context.{message_id business_id}"), TEXT),
    f"{CONTEXT}.headers": collection("dict", TEXT),
    "pathlib.Path.parent": instance("pathlib.Path"),
    "pathlib.Path.parents": collection("tuple", instance("pathlib.Path")),
}
_DEEPEST_CALLS = 30
_RE_ENTRIES = 2
_ALLOWED_AT_IMPORT = frozenset({"CM801", "CM802", "CM803", "CM808"})

Step = tuple[str, ast.AST, SourceModule]
"""A followed function or name: its text in the chain of calls, its syntax tree, and its module."""


@dataclass
class Checker:
    """The state that all scopes share: modules, classes, findings, and the chain of calls that is being followed."""

    scopes: type[Scope]
    modules: Modules = field(default_factory=Modules)
    findings: dict[Hashable, Finding] = field(default_factory=dict)
    known: dict[Hashable, Value] = field(default_factory=dict)  # the values of names and calls, by `mode`
    counts: Counter[Hashable] = field(default_factory=Counter)
    classes: dict[ast.ClassDef, Class] = field(default_factory=dict)
    mode: tuple[bool, bool] = (False, False)  # whether reports are off, and a module is being imported
    tops: dict[SourceModule, Scope] = field(default_factory=dict)
    chain: tuple[Step, ...] = ()

    def top(self, module: SourceModule) -> Scope:
        """Return the top-level scope of a module. It is cached."""
        return self.tops.setdefault(module, self.scopes(self, module))

    @contextmanager
    def following(
        self, step: Step | None = None, *, quietly: bool = False, importing: bool = False
    ) -> Iterator[None]:
        """Context manager that adds a step to the chain. If `quietly` is set, the block reports nothing.

        If `importing` is set, findings that are allowed in code that runs on import are not reported.
        """
        before = self.mode, self.chain
        self.mode = (self.mode[0] or quietly, self.mode[1] or importing)
        self.chain = (*self.chain, step) if step else self.chain
        try:
            yield
        finally:
            self.mode, self.chain = before

    def is_too_deep(self, node: ast.AST) -> bool:
        """Return whether to stop at a node: the chain has it twice already, by recursion, or is too long."""
        times = sum(each is node for _, each, _ in self.chain)
        return len(self.chain) >= _DEEPEST_CALLS or times >= _RE_ENTRIES


@dataclass(eq=False)
class Scope(ABC):
    """The names of a module, class body or function. `interpreter.Interpreter` follows the source."""

    checker: Checker
    module: SourceModule
    parent: Scope | None = None
    function: Function | None = None
    body_of: Class | None = None
    names: dict[str, Value] = field(default_factory=dict)
    globals: set[str] = field(default_factory=set)
    returned: list[Value] = field(default_factory=list)
    yielded: list[Value] = field(default_factory=list)

    @abstractmethod
    def evaluate(self, node: ast.expr) -> Value:
        """Return the possible values of an expression, and report findings in it."""

    @abstractmethod
    def execute(self, body: Sequence[ast.stmt]) -> None:
        """Follow statements in order: both branches of a condition, and the body of a loop up to twice."""

    @abstractmethod
    def call(self, callee: Value, arguments: Arguments, node: ast.AST) -> Value:
        """Return the possible results of a call, and report findings in the called code."""

    def quietly(self, node: ast.expr) -> Value:
        with self.checker.following(quietly=True):
            return self.evaluate(node)

    def report(self, code: str, node: ast.AST, what: str | None = None) -> None:
        """Report a broken rule, if it is new at the node. `what` is the text shown, by default the node's source."""
        (is_quiet, is_importing), chain = self.checker.mode, self.checker.chain
        line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0) + 1
        key = (self.module.path, line, column, code)
        if not (is_quiet or (is_importing and code in _ALLOWED_AT_IMPORT) or key in self.checker.findings):
            way = (name if each is chain[0][2] else f"{each.name}.{name}" for name, _, each in chain)
            self.checker.findings[key] = Finding(*key[:3], code, what or rules.excerpt(node), tuple(way))

    def inside(self, *, function: Function | None = None, body_of: Class | None = None) -> Self:
        return type(self)(self.checker, self.module, self, function=function, body_of=body_of)

    def class_of(self, node: ast.ClassDef) -> Class:
        """Return the class that a statement defines. It is cached."""
        if node not in self.checker.classes:
            self.checker.classes[node] = Class(node, self)
        return self.checker.classes[node]

    def local(self, name: str) -> Value | None:
        """Return the value of a name in this or an enclosing scope, or None if the name is not local."""
        if name in self.globals:
            return None
        if name in self.names or self.parent is None:
            return self.names.get(name)
        return self.parent.local(name)

    def is_global(self, name: str) -> bool:
        return name in self.globals or (self.parent is not None and self.parent.is_global(name))

    def marks(self, node: ast.AST) -> list[str]:
        """Return the full names of the decorators of a function or class, except decorators that the user defined."""
        decorators: list[ast.expr] = getattr(node, "decorator_list", [])
        found = (self.quietly(each.func if isinstance(each, ast.Call) else each) for each in decorators)
        return [option.name for value in found for option in value if isinstance(option, External)]

    def annotated(self, node: ast.expr | None) -> Value:
        """Return the possible values of a name with this annotation."""
        return join(*map(self._instance_of, self.quietly(node))) if node else ()

    def _instance_of(self, type_: Option) -> Value:
        match type_:
            case Class():
                return instance(type_)
            case Instance(literal=str(text)):
                return self.annotated(source.parse_expression(text))
            case External(name=name, bound=arguments):
                members = [join(*map(self._instance_of, argument)) for argument in arguments]
                if name in _FIRST or name == "typing.Union":
                    return join(*(members if name == "typing.Union" else members[:1]))
                if name not in KINDS:
                    return instance(name)
                if KINDS[name] == "tuple" and arguments and arguments[-1] != literal(...):
                    return row(*members)
                element, item = join(*members[:1]), join(*members[1:])
                return collection(KINDS[name], element, item if KINDS[name] == "dict" else None)
        return ()

    def lookup(self, name: str) -> Value | None:
        """Return the value of a local, class-level, module-level or builtin name, or None if there is no such name."""
        value = self.local(name)
        if value is None and self.body_of is not None and name in self.body_of.bindings:
            bindings = self.body_of.bindings[name]
            value = join(*(self.bound(name, each, Owner.CLASS) for each in bindings))
        if value is None:
            value = self._top_name(name, self.module)
        is_builtin = value is None and hasattr(builtins, name)
        return (External(f"builtins.{name}"),) if is_builtin else value

    def _top_name(self, name: str, module: SourceModule) -> Value | None:
        checker = self.checker
        key = ("name", module, name, checker.mode)
        if key not in checker.known:
            checker.known[key] = ()  # ends the recursion of a name defined by itself
            top = checker.top(module)
            bound = [top.bound(name, each, Owner.MODULE) for each in module.bindings.get(name, ())]
            value = join(*bound) if bound else top.from_stars(name)
            if value is None:
                del checker.known[key]
                return None
            checker.known[key] = value
        return checker.known[key]

    def from_stars(self, name: str) -> Value | None:
        """Return the value of a name that a star import in this module binds, or None if none binds it."""
        stars = (each for each in self.module.bindings.get("*", ()) if isinstance(each, Imported))
        for star in stars:
            module = self._imported_module(star)
            if module is not None:
                value = self._top_name(name, module)
                if value is not None:
                    return value
            elif name in _public_names(star.module):
                return (External(rules.canonical(f"{star.module}.{name}")),)
        return None

    def bound(self, name: str, binding: Binding, owner: Owner) -> Value:
        """Return the value that one binding gives to a name of this module or class body. `owner` owns the value."""
        if isinstance(binding, Imported):
            return self.imported(binding)
        if isinstance(binding, ast.ClassDef):
            return (self.class_of(binding),)
        if isinstance(binding, FunctionNode):
            body = self.body_of
            return (body.function(binding),) if body else self.decorated(Function(binding, self))
        value = self.annotated(binding.annotation)
        if binding.value is not None and not self.checker.is_too_deep(binding.value):
            with self.checker.following((name, binding.value, self.module), importing=True):
                given = self.evaluate(binding.value)
            given = element_of(given) if binding.is_part else given
            # A literal may be only the default of what the annotation allows.
            has_literal = any(map(is_literal, given))
            value = join(*filter(None, (given, value))) if has_literal else given or value
        return owned(value, owner)

    def _imported_module(self, binding: Imported) -> SourceModule | None:
        modules, name = self.checker.modules, binding.module
        return modules.near(self.module, name, binding.level) if binding.level else modules.find(name)

    def imported(self, binding: Imported) -> Value:
        module, name = self._imported_module(binding), binding.attribute
        if module is not None:
            return (Package(module),) if name is None else self._in_package(module, name)
        full = f"{binding.module}.{name}" if name else binding.module
        return () if binding.level else (External(rules.canonical(full)),)

    def _in_package(self, module: SourceModule, name: str) -> Value:
        value = self._top_name(name, module)
        inside = self.checker.modules.inside(module, name) if value is None else None
        return (Package(inside),) if inside else value or ()

    def decorated(self, function: Function) -> Value:
        """Return the value of a decorated function: itself, or the functions that the user's decorators return."""
        value: Value = (function,)
        with self.checker.following(importing=function.scope.function is None):
            for decorator in reversed(getattr(function.node, "decorator_list", [])):
                for option in self.evaluate(decorator):
                    if isinstance(option, External) and rules.called(option.name) == "CM804":
                        self.report("CM804", decorator, option.name)
                    elif isinstance(option, Function | Class):
                        made = self.call((option,), Arguments((value,)), decorator)
                        value = tuple(each for each in made if isinstance(each, Function)) or value
        return value

    def attribute(self, base: Value, name: str, node: ast.AST) -> Value:
        """Return the possible values of an attribute. Report an attribute that a handler must not read."""
        return join(*(self._attribute(each, name, node) for each in base or (Instance(),)))

    def check_read(self, value: Value, node: ast.AST) -> None:
        for option in value:
            if isinstance(option, External) and (code := rules.read(option.name)):
                self.report(code, node, option.name)

    def _attribute(self, option: Option, name: str, node: ast.AST) -> Value:  # noqa: C901 - one table of cases
        results: Value = (Attribute(option, name),)
        match option:
            case _ if name == "__call__":
                return (option,)
            case External() | Package() if name == "__dict__":
                return (option,)
            case External(name=module):
                results = (External(rules.canonical(f"{module}.{name}")),)
                self.check_read(results, node)
            case Package(module=module):
                results = self._in_package(module, name)
            case Instance(of=Class()) if name == "__dict__":
                results = owned(collection("dict"), option.owner)
            case Instance(of=Class() as class_):
                bindings = class_.members(name, option.after)
                members = [base.value_of(option, each, node) for base, each in bindings]
                results = join(*members) if members else results
            case Instance(of=str(of)) if of:
                if name == "random" and of == CONTEXT:
                    self.report("CM206", node, "context.random")
                results = _OF_INSTANCES.get(f"{of}.{name}", results)
            case Class():
                members = [base.value_of(option, each, node) for base, each in option.members(name)]
                bases = [each for each in option.mro if isinstance(each, str) and each not in MODELS]
                if members or not bases or bases[0] == "handlers.Handler":
                    results = join(*members) if members else results
                else:
                    results = (External(f"{bases[0]}.{name}"),)
        return results


@cache
def _public_names(module: str) -> frozenset[str]:
    known = (rules.STAR_MODULES & sys.stdlib_module_names) | {"handlers", "pydantic"}
    try:
        found = vars(importlib.import_module(module)) if module.partition(".")[0] in known else {}
    except ImportError:  # some modules exist on other operating systems only
        found = {}
    return frozenset(found.get("__all__", [name for name in found if not name.startswith("_")]))
