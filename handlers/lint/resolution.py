"""Names, annotations and attributes resolved to the values that they may have."""

from __future__ import annotations

import ast
import builtins
import importlib
import sys
from collections.abc import Iterator
from functools import cache

from handlers.lint import rules
from handlers.lint.checker import Checker
from handlers.lint.source import Assigned, Binding, FunctionNode, Imported, SourceModule, parse_expression
from handlers.lint.values import (
    UNKNOWN,
    Arguments,
    Class,
    ClassDefinition,
    Collection,
    Constant,
    External,
    Function,
    Instance,
    Method,
    Object,
    Owner,
    Package,
    Scope,
    Super,
    Value,
    collection,
    element_of,
    join,
    options,
    owned,
    row,
)

# Annotations: the values that an annotated name may have.

_KINDS = {
    "builtins.set": "set",
    "builtins.frozenset": "frozenset",
    "builtins.list": "list",
    "builtins.tuple": "tuple",
    "builtins.dict": "dict",
    "typing.Set": "set",
    "typing.AbstractSet": "frozenset",
    "typing.MutableSet": "set",
    "typing.FrozenSet": "frozenset",
    "typing.List": "list",
    "typing.Tuple": "tuple",
    "typing.Dict": "dict",
    "typing.Mapping": "dict",
    "typing.MutableMapping": "dict",
    "typing.Sequence": "list",
    "typing.MutableSequence": "list",
    "typing.Collection": "list",
    "typing.Iterable": "iterator",
    "typing.Iterator": "iterator",
    "typing.Generator": "iterator",
    "typing.DefaultDict": "dict",
    "typing.Counter": "dict",
    "typing.Deque": "list",
    "collections.deque": "list",
    "collections.defaultdict": "dict",
    "collections.OrderedDict": "dict",
    "collections.Counter": "dict",
}
_TRANSPARENT = frozenset(
    f"typing.{name}"
    for name in ("Annotated", "Final", "ClassVar", "Optional", "Required", "NotRequired", "ReadOnly")
)
_MAPPINGS = 2


def annotated(node: ast.expr | None, scope: Scope, checker: Checker) -> Value:
    """Return the values that a name with this annotation may have."""
    match node:
        case None:
            return UNKNOWN
        case ast.Constant(value=str(text)):
            return annotated(parse_expression(text), scope, checker)
        case ast.BinOp(op=ast.BitOr(), left=left, right=right):
            return join(annotated(left, scope, checker), annotated(right, scope, checker))
        case ast.Subscript(value=generic, slice=inside):
            arguments = inside.elts if isinstance(inside, ast.Tuple) else [inside]
            return _subscripted(checker.quietly(generic, scope), list(arguments), scope, checker)
        case ast.Name() | ast.Attribute():
            return _instance(checker.quietly(node, scope), node, scope, checker)
        case _:
            return UNKNOWN


def _instance(type_: Value, node: ast.expr, scope: Scope, checker: Checker) -> Value:
    """Return an instance of the type that an annotation evaluated to, or names by an alias."""
    if isinstance(type_, Class | External):
        return _instance_of(type_)
    return _alias(node.id, scope, checker) if isinstance(node, ast.Name) else UNKNOWN


def _instance_of(type_: Value) -> Value:
    if isinstance(type_, Class):
        return Object(type_.definition)
    if isinstance(type_, External):
        kind = _KINDS.get(type_.name)
        return collection(kind) if kind else Instance(type_.name)
    return UNKNOWN


def _alias(name: str, scope: Scope, checker: Checker) -> Value:
    """Return an instance of the type that a name at the top of the module stands for."""
    for binding in scope.module.bindings.names.get(name, ()):
        assigned = binding.value if isinstance(binding, Assigned) else None
        if assigned is not None and not checker.is_too_deep(assigned):
            with checker.within(name, assigned, scope.module):
                return annotated(assigned, checker.module_scope(scope.module), checker)
    return UNKNOWN


def _subscripted(generic: Value, arguments: list[ast.expr], scope: Scope, checker: Checker) -> Value:
    if not isinstance(generic, External):
        return _instance_of(generic)
    if generic.name in _TRANSPARENT:
        return annotated(arguments[0], scope, checker)
    if generic.name == "typing.Union":
        return join(*(annotated(each, scope, checker) for each in arguments))
    kind = _KINDS.get(generic.name)
    if kind is None:
        return Instance(generic.name)
    members = [annotated(each, scope, checker) for each in arguments]
    return _of_members(kind, members, arguments)


def _of_members(kind: str, members: list[Value], arguments: list[ast.expr]) -> Collection:
    if kind == "dict" and len(members) == _MAPPINGS:
        return collection("dict", members[0], item=members[1])
    is_variadic = isinstance(arguments[-1], ast.Constant) and arguments[-1].value is ...
    if kind == "tuple" and not is_variadic:
        return row(*members)
    return collection(kind, members[0])


# Decorators: what the name of a decorated function refers to.

_CACHE = "CM804"


def decorated(function: Function, scope: Scope, checker: Checker) -> Value:
    """Return the value of a function's name: the function, or what the user's decorators return for it."""
    if function.definition.is_shared:
        with checker.importing():
            return _decorated(function, scope, checker)
    return _decorated(function, scope, checker)


def _decorated(function: Function, scope: Scope, checker: Checker) -> Value:
    value: Value = function
    for node in reversed(function.definition.decorators):
        decorator = checker.evaluate(node, scope)
        for option in options(decorator):
            if isinstance(option, External) and rules.called(option.name) == _CACHE:
                checker.report(_CACHE, node, scope, option.name)
            elif isinstance(option, Function | Class):
                made = checker.call(option, Arguments((value,)), node, scope)
                value = made if isinstance(made, Function) else value
    return value


# Lookup: the values that a name may have, through scopes, class bodies, modules and their imports.

_SHARED = (Collection, Object, Instance)
_OWN_STARS = frozenset({rules.FRAMEWORK, "pydantic"})


def lookup(name: str, scope: Scope, checker: Checker) -> Value | None:
    """Return the value of a name, None when there is no such name."""
    found = scope.local(name)
    if found is None and scope.body_of is not None:
        found = _in_body(name, scope.body_of, checker)
    if found is None:
        found = top_name(name, scope.module, checker)
    if found is None and hasattr(builtins, name):
        return External(f"builtins.{name}")
    return found


def top_name(name: str, module: SourceModule, checker: Checker) -> Value | None:
    """Return the value of a name at the top of a module, None when there is no such name."""
    key = ("name", module, name, checker.mode)
    if key not in checker.known:
        checker.known[key] = UNKNOWN  # for a name that is defined by itself
        bindings = module.bindings.names.get(name, [])
        scope = checker.module_scope(module)
        found = [bound(name, each, scope, Owner.MODULE, checker) for each in bindings]
        value = join(*found) if found else _from_stars(name, module, checker)
        if value is None:
            del checker.known[key]
            return None
        checker.known[key] = value
    return checker.known[key]


def bound(name: str, binding: Binding, scope: Scope, owner: Owner, checker: Checker) -> Value:
    """Return the value that one binding gives a name of a module or class body."""
    if isinstance(binding, Imported):
        return imported(binding, scope.module, checker)
    if isinstance(binding, ast.ClassDef):
        return Class(checker.class_of(binding, scope))
    if isinstance(binding, FunctionNode):
        return decorated(Function(checker.function_of(binding, scope)), scope, checker)
    return _assigned(name, binding, scope, owner, checker)


def imported(binding: Imported, module: SourceModule, checker: Checker) -> Value:
    """Return the value that an import binds."""
    if binding.level:
        found = checker.modules.near(module, binding.module, binding.level)
        if found is None:
            return UNKNOWN
    else:
        found = checker.modules.find(binding.module)
        if found is None:
            dotted = ".".join(filter(None, (binding.module, binding.attribute)))
            return External(rules.canonical(dotted))
    return Package(found) if binding.attribute is None else in_package(found, binding.attribute, checker)


def in_package(module: SourceModule, name: str, checker: Checker) -> Value:
    """Return the value of an attribute of a module of the user's."""
    found = top_name(name, module, checker)
    if found is not None:
        return found
    inside = checker.modules.inside(module, name)
    return Package(inside) if inside else UNKNOWN


def _in_body(name: str, definition: ClassDefinition, checker: Checker) -> Value | None:
    """Return the value of a name of a class body, as other statements of that body see it."""
    found = [
        Function(definition.function(binding))
        if isinstance(binding, FunctionNode)
        else bound(name, binding, definition.body_scope, Owner.CLASS, checker)
        for binding in definition.bindings.names.get(name, ())
    ]
    return join(*found) if found else None


def _assigned(name: str, binding: Assigned, scope: Scope, owner: Owner, checker: Checker) -> Value:
    value = annotated(binding.annotation, scope, checker)
    if binding.value is not None and not checker.is_too_deep(binding.value):
        with checker.within(name, binding.value, scope.module), checker.importing():
            given = checker.evaluate(binding.value, scope)
        given = element_of(given) if binding.is_part else given
        if isinstance(given, Constant):
            value = join(given, value)
        elif given != UNKNOWN:
            value = join(given)
    return join(*(_shared(each, owner) for each in options(value)))


def _shared(value: Value, owner: Owner) -> Value:
    return owned(value, owner) if isinstance(value, _SHARED) or type(value) is Value else value


def _from_stars(name: str, module: SourceModule, checker: Checker) -> Value | None:
    modules = checker.modules
    for star in module.bindings.stars:
        source = modules.near(module, star.module, star.level) if star.level else modules.find(star.module)
        if source is not None:
            found = top_name(name, source, checker)
            if found is not None:
                return found
        elif name in _public_names(star.module):
            return External(rules.canonical(f"{star.module}.{name}"))
    return None


@cache
def _public_names(module: str) -> frozenset[str]:
    """Return what a star imports from a module for which there are rules, or that the linter imports itself."""
    top = module.partition(".")[0]
    if top not in _OWN_STARS and top not in rules.STAR_MODULES & sys.stdlib_module_names:
        return frozenset()
    try:
        found = vars(importlib.import_module(module))
    except ImportError:  # some modules exist on other operating systems only
        return frozenset()
    return frozenset(found.get("__all__", [name for name in found if not name.startswith("_")]))


# Classes of the user's: their bases, their members, and the marks of their methods.

MODELS: frozenset[object] = frozenset(
    {"pydantic.BaseModel", "handlers.State", "handlers.Message", "typing.NamedTuple"}
)
"""Bases that make fields of the annotated names in a class body."""


def mro(definition: ClassDefinition, checker: Checker) -> tuple[ClassDefinition | str, ...]:
    """Return a class and its bases, nearest first; those that are not the user's by their full name."""
    if not definition.mro:
        found: dict[ClassDefinition | str, None] = {}
        _collect(definition, found, checker)
        definition.mro = tuple(found)
    return definition.mro


def users_mro(definition: ClassDefinition, checker: Checker) -> list[ClassDefinition]:
    """Return a class and those of its bases that are the user's, nearest first."""
    return [base for base in mro(definition, checker) if isinstance(base, ClassDefinition)]


def is_a(definition: ClassDefinition, name: str, checker: Checker) -> bool:
    """Return whether a class is derived from one that is not the user's."""
    return name in mro(definition, checker)


def is_record(definition: ClassDefinition, checker: Checker) -> bool:
    """Return whether annotated names in the body of a class are fields of its instances."""
    if not MODELS.isdisjoint(mro(definition, checker)):
        return True
    marks = [
        checker.quietly(_without_call(node), definition.scope) for node in definition.node.decorator_list
    ]
    return any(
        isinstance(mark, External) and mark.name.endswith(("dataclass", "attr.s", "define")) for mark in marks
    )


def members(
    definition: ClassDefinition, name: str, checker: Checker
) -> Iterator[tuple[ClassDefinition, Binding]]:
    """Yield what a name is bound to in a class, or in the nearest base that has it."""
    for base in users_mro(definition, checker):
        if name in base.bindings.names:
            yield from ((base, binding) for binding in base.bindings.names[name])
            return


def marks_of(definition: ClassDefinition, function: ast.AST, checker: Checker) -> list[str]:
    """Return the full names of a method's decorators that are not the user's."""
    nodes = function.decorator_list if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) else []
    values = [checker.quietly(_without_call(node), definition.body_scope) for node in nodes]
    return [option.name for value in values for option in options(value) if isinstance(option, External)]


def _collect(definition: ClassDefinition, found: dict[ClassDefinition | str, None], checker: Checker) -> None:
    if definition in found:
        return
    found[definition] = None
    for node in definition.node.bases:
        base = checker.quietly(node.value if isinstance(node, ast.Subscript) else node, definition.scope)
        for option in options(base):
            if isinstance(option, Class):
                _collect(option.definition, found, checker)
            elif isinstance(option, External):
                found[option.name] = None


def _without_call(node: ast.expr) -> ast.expr:
    return node.func if isinstance(node, ast.Call) else node


# Members of the user's classes: the values of attributes of an instance, of a class, and of `super()`.

_GETTERS = frozenset(
    {"builtins.property", "functools.cached_property", "pydantic.computed_field", "typing.override"}
)


def of_object(value: Object, name: str, node: ast.AST, checker: Checker) -> Value:
    """Return the value of an instance's attribute, and follow the property that computes it."""
    if name == "__class__":
        return Class(value.definition)
    if name == "__dict__":
        return owned(collection("dict"), value.owner)
    found = [
        _of_object(value, base, binding, node, checker)
        for base, binding in members(value.definition, name, checker)
    ]
    if not found or isinstance(found[0], Constant):
        found += _assigned_by_methods(value, name, checker)
    return join(*found) if found else _inherited(value, name, checker)


def of_class(value: Class, name: str, checker: Checker) -> Value:
    """Return the value of a class's attribute."""
    found = [
        _of_class(value, base, binding, name, checker)
        for base, binding in members(value.definition, name, checker)
    ]
    return join(*found) if found else _inherited(value, name, checker)


def of_super(value: Super, name: str, checker: Checker) -> Value:
    """Return the value of an attribute of the bases after a class."""
    owner = value.bound.definition if isinstance(value.bound, Object | Class) else value.after
    bases = mro(owner, checker)
    after = bases[bases.index(value.after) + 1 :] if value.after in bases else ()
    for base in after:
        if isinstance(base, ClassDefinition):
            for binding in base.bindings.names.get(name, ()):
                if isinstance(binding, FunctionNode):
                    return Function(base.function(binding), value.bound)
        elif base != "builtins.object":
            break
    return Method(value.bound, name)


def _of_object(
    value: Object, base: ClassDefinition, binding: Binding, node: ast.AST, checker: Checker
) -> Value:
    if isinstance(binding, FunctionNode):
        marks = marks_of(base, binding, checker)
        method = Function(base.function(binding), _receiver(value, marks))
        function = decorated(method, base.scope, checker)
        if _GETTERS.intersection(marks) or any(mark.endswith("cached_property") for mark in marks):
            return checker.call(method, Arguments(), node, base.scope)
        return function
    if isinstance(binding, Assigned) and binding.annotation is not None and is_record(base, checker):
        return owned(annotated(binding.annotation, base.body_scope, checker), value.owner)
    return bound("", binding, base.body_scope, Owner.CLASS, checker)


def _of_class(value: Class, base: ClassDefinition, binding: Binding, name: str, checker: Checker) -> Value:
    if isinstance(binding, FunctionNode):
        receiver = value if "builtins.classmethod" in marks_of(base, binding, checker) else None
        return decorated(Function(base.function(binding), receiver), base.scope, checker)
    if is_a(value.definition, "enum.Enum", checker):
        return Object(value.definition)
    return bound(name, binding, base.body_scope, Owner.CLASS, checker)


def _receiver(value: Object, marks: list[str]) -> Value | None:
    if "builtins.staticmethod" in marks:
        return None
    return Class(value.definition) if "builtins.classmethod" in marks else value


def _assigned_by_methods(value: Object, name: str, checker: Checker) -> list[Value]:
    """Return what the methods of a class assign to an attribute of their first argument."""
    return [
        owned(each, value.owner)
        for base in users_mro(value.definition, checker)
        for method in base.node.body
        if isinstance(method, ast.FunctionDef)
        for each in _assigned_in(method, base, name, checker)
    ]


def _assigned_in(
    method: ast.FunctionDef, base: ClassDefinition, name: str, checker: Checker
) -> Iterator[Value]:
    scope = Scope(base.module, base.scope, function=base.function(method))
    for parameter in (*method.args.posonlyargs, *method.args.args, *method.args.kwonlyargs):
        scope.names[parameter.arg] = annotated(parameter.annotation, base.scope, checker)
    for node in ast.walk(method):
        match node:
            case ast.Assign(targets=[ast.Attribute(value=ast.Name(), attr=attribute)], value=assigned):
                if attribute == name and not checker.is_too_deep(node):
                    with checker.within("", node, scope.module):
                        value = checker.quietly(assigned, scope)
                    yield value
            case ast.AnnAssign(target=ast.Attribute(value=ast.Name(), attr=attribute), annotation=annotation):
                if attribute == name:
                    yield annotated(annotation, scope, checker)
            case _:
                pass


def _inherited(value: Object | Class, name: str, checker: Checker) -> Value:
    """Return the value of an attribute that none of the user's classes defines."""
    if isinstance(value, Class):
        for base in mro(value.definition, checker):
            if isinstance(base, str) and base not in {*MODELS, "handlers.Handler"}:
                return External(f"{base}.{name}")
    return Method(value, name)


# Attributes of values.

CONTEXT = "handlers.Context"
_OF_CONTEXT: dict[str, Value] = {
    "now": Instance("datetime.datetime"),
    "random": Instance("random.Random"),
    "message_id": Instance("builtins.str"),
    "business_id": Instance("builtins.str"),
    "headers": collection("dict", Instance("builtins.str")),
}
_PATH = "pathlib.Path"


def attribute(base: Value, name: str, node: ast.AST, scope: Scope, checker: Checker) -> Value:
    """Return the possible values of an attribute, and report one that a handler must not read."""
    if name == "__call__":
        return base
    return join(*(_attribute(each, name, node, scope, checker) for each in options(base)))


def check_read(value: Value, node: ast.AST, scope: Scope, checker: Checker) -> None:
    """Report a name of a library that a handler must not read."""
    for option in options(value):
        if isinstance(option, External) and (code := rules.read(option.name)):
            checker.report(code, node, scope, option.name)


def _attribute(value: Value, name: str, node: ast.AST, scope: Scope, checker: Checker) -> Value:
    match value:
        case External():
            return _of_external(value, name, node, scope, checker)
        case Instance():
            if value.of == CONTEXT and name == "random":
                checker.report("CM206", node, scope, "context.random")
            return _of_instance(value, name)
        case Package():
            return value if name == "__dict__" else in_package(value.module, name, checker)
        case Object():
            found = of_object(value, name, node, checker)
            is_unowned = isinstance(found, Method) and found.owner is None
            return owned(found, value.owner) if is_unowned else found
        case Class():
            return of_class(value, name, checker)
        case Super():
            return of_super(value, name, checker)
        case Method():
            return Method(Value(owner=value.owner), name, owner=value.owner)
        case _:
            return Method(value, name, owner=value.owner)


def _of_external(value: External, name: str, node: ast.AST, scope: Scope, checker: Checker) -> Value:
    if name == "__dict__":
        return External(f"{value.name}.__dict__")
    found = External(rules.canonical(f"{value.name}.{name}"))
    check_read(found, node, scope, checker)
    return found


def _of_instance(value: Instance, name: str) -> Value:
    if value.of == CONTEXT and name in _OF_CONTEXT:
        return _OF_CONTEXT[name]
    if value.of == _PATH and name in ("parent", "parents"):
        return value if name == "parent" else collection("tuple", value)
    if name == "__class__":
        return External(value.of)
    return Method(value, name, owner=value.owner)
