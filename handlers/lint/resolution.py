"""Names, annotations and attributes resolved to the values that they may have."""

from __future__ import annotations

import ast
import builtins
import importlib
import sys
from dataclasses import replace
from functools import cache

from handlers.lint import rules, values
from handlers.lint.rules import listed
from handlers.lint.source import Assigned, Binding, FunctionNode, Imported, SourceModule, parse_expression
from handlers.lint.values import Arguments, Attribute, Class, External, Function, Instance, Option, Owner
from handlers.lint.values import Package, Scope, Value, collection, instance, join, owned

# Annotations: the values that an annotated name may have.

KINDS = {
    name: kind
    for kind, names in {
        "set": "builtins.set typing.{Set MutableSet}",
        "frozenset": "builtins.frozenset typing.{AbstractSet FrozenSet}",
        "list": "builtins.list typing.{List Sequence MutableSequence Collection Deque} collections.deque",
        "tuple": "builtins.tuple typing.Tuple",
        "dict": "builtins.dict typing.{Dict Mapping MutableMapping DefaultDict Counter} "
        "collections.{defaultdict OrderedDict Counter}",
        "iterator": "typing.{Iterable Iterator Generator}",
    }.items()
    for name in listed(names)
}
"""The generic types of collections."""
_TRANSPARENT = listed("typing.{Annotated Final ClassVar Optional Required NotRequired ReadOnly}")


def annotated(node: ast.expr | None, scope: Scope) -> Value:
    """Return the values that a name with this annotation may have."""
    if node is None:
        return ()
    return join(*(_instance_of(each, scope) for each in scope.quietly(node)))


def _instance_of(type_: Option, scope: Scope) -> Value:
    match type_:
        case Class():
            return instance(type_)
        case Instance(literal=str(text)):
            return annotated(parse_expression(text), scope)
        case External(name=name, bound=arguments):
            members = [join(*(_instance_of(each, scope) for each in argument)) for argument in arguments]
            if name in _TRANSPARENT or name == "typing.Union":
                return join(*(members if name == "typing.Union" else members[:1]))
            if name not in KINDS:
                return instance(name)
            if KINDS[name] == "tuple" and arguments and arguments[-1] != values.literal(...):
                return values.row(*members)
            return collection(KINDS[name], *members[: 2 if KINDS[name] == "dict" else 1])
    return ()


# Lookup: the values that a name may have, through scopes, class bodies, modules and their imports.


def lookup(name: str, scope: Scope) -> Value | None:
    """Return the value of a name, None when there is no such name."""
    found = scope.local(name)
    if found is None and scope.body_of is not None:
        # A name of a class body, as other statements of that body see it.
        in_body = [bound(name, each, scope, Owner.CLASS) for each in scope.body_of.bindings.get(name, ())]
        found = join(*in_body) if in_body else None
    if found is None:
        found = _top_name(name, scope.module, scope)
    if found is None and hasattr(builtins, name):
        return (External(f"builtins.{name}"),)
    return found


def _top_name(name: str, module: SourceModule, scope: Scope) -> Value | None:
    """Return the value of a name at the top of a module, None when there is no such name."""
    checker = scope.checker
    key = ("name", module, name, checker.mode)
    if key not in checker.known:
        checker.known[key] = ()  # for a name that is defined by itself
        top = checker.top(module)
        found = [bound(name, each, top, Owner.MODULE) for each in module.bindings.get(name, ())]
        value = join(*found) if found else _from_stars(name, top)
        if value is None:
            del checker.known[key]
            return None
        checker.known[key] = value
    return checker.known[key]


def _from_stars(name: str, top: Scope) -> Value | None:
    for star in top.module.bindings.get("*", ()):
        assert isinstance(star, Imported)
        source = _imported_module(star, top)
        found = _top_name(name, source, top) if source else None
        if found is not None:
            return found
        if source is None and name in _public_names(star.module):
            return (External(rules.canonical(f"{star.module}.{name}")),)
    return None


@cache
def _public_names(module: str) -> frozenset[str]:
    """Return what a star imports from a module for which there are rules, or that the linter imports itself."""
    known = (rules.STAR_MODULES & sys.stdlib_module_names) | {"handlers", "pydantic"}
    try:
        found = vars(importlib.import_module(module)) if module.partition(".")[0] in known else {}
    except ImportError:  # some modules exist on other operating systems only
        found = {}
    return frozenset(found.get("__all__", [name for name in found if not name.startswith("_")]))


def bound(name: str, binding: Binding, scope: Scope, owner: Owner) -> Value:
    """Return the value that one binding gives a name of a module or class body."""
    if isinstance(binding, Imported):
        return imported(binding, scope)
    if isinstance(binding, ast.ClassDef):
        return (scope.class_of(binding),)
    if isinstance(binding, FunctionNode):
        body = scope.body_of
        return (body.function(binding),) if body else decorated(Function(binding, scope), scope)
    value = annotated(binding.annotation, scope)
    if binding.value is not None and not scope.checker.is_too_deep(binding.value):
        with scope.checker.within(name, binding.value, scope.module), scope.checker.following(importing=True):
            given = scope.evaluate(binding.value)
        given = values.element_of(given) if binding.is_part else given
        is_literal = any(map(values.is_literal, given))
        value = join(*filter(None, (given, value))) if is_literal else given or value
    return owned(value, owner)


def _imported_module(binding: Imported, scope: Scope) -> SourceModule | None:
    modules, name = scope.checker.modules, binding.module
    return modules.near(scope.module, name, binding.level) if binding.level else modules.find(name)


def imported(binding: Imported, scope: Scope) -> Value:
    """Return the value that an import binds."""
    found, name = _imported_module(binding, scope), binding.attribute
    if found is not None:
        return (Package(found),) if name is None else _in_package(found, name, scope)
    full = f"{binding.module}.{name}" if name else binding.module
    return () if binding.level else (External(rules.canonical(full)),)


def _in_package(module: SourceModule, name: str, scope: Scope) -> Value:
    found = _top_name(name, module, scope)
    if found is None:
        inside = scope.checker.modules.inside(module, name)
        return (Package(inside),) if inside else ()
    return found


def decorated(function: Function, scope: Scope) -> Value:
    """Return the value of a function's name: the function, or what the user's decorators return for it."""
    value: Value = (function,)
    with scope.checker.following(importing=function.scope.function is None):
        for decorator in reversed(getattr(function.node, "decorator_list", [])):
            for option in scope.evaluate(decorator):
                if isinstance(option, External) and rules.called(option.name) == "CM804":
                    scope.report("CM804", decorator, option.name)
                elif isinstance(option, Function | Class):
                    made = scope.call((option,), Arguments((value,)), decorator)
                    value = tuple(each for each in made if isinstance(each, Function)) or value
    return value


# Attributes.

CONTEXT = "handlers.Context"
_OF_INSTANCES: dict[str, Value] = {
    f"{CONTEXT}.now": instance("datetime.datetime"),
    f"{CONTEXT}.random": instance("random.Random"),
    **dict.fromkeys(listed("handlers.Context.{message_id business_id}"), values.TEXT),
    f"{CONTEXT}.headers": collection("dict", values.TEXT),
    "pathlib.Path.parent": instance("pathlib.Path"),
    "pathlib.Path.parents": collection("tuple", instance("pathlib.Path")),
}
_GETTERS = listed("builtins.property functools.cached_property pydantic.computed_field typing.override")


def attribute(base: Value, name: str, node: ast.AST, scope: Scope) -> Value:
    """Return the possible values of an attribute, and report one that a handler must not read."""
    if name == "__call__":
        return base
    return join(*(_attribute(each, name, node, scope) for each in base or (Instance(),)))


def check_read(value: Value, node: ast.AST, scope: Scope) -> None:
    """Report a name of a library that a handler must not read."""
    for option in value:
        if isinstance(option, External) and (code := rules.read(option.name)):
            scope.report(code, node, option.name)


def _attribute(option: Option, name: str, node: ast.AST, scope: Scope) -> Value:
    found: Value = (Attribute(option, name),)
    match option:
        case External() | Package() if name == "__dict__":
            return (option,)
        case External(name=module):
            found = (External(rules.canonical(f"{module}.{name}")),)
            check_read(found, node, scope)
        case Package(module=module):
            found = _in_package(module, name, scope)
        case Instance(of=Class() as class_):
            found = _of_object(option, class_, name, node) or found
        case Instance(of=str(of)) if of:
            if name == "random" and of == CONTEXT:
                scope.report("CM206", node, "context.random")
            found = (External(of),) if name == "__class__" else _OF_INSTANCES.get(f"{of}.{name}", found)
        case Class():
            members = [_of_binding(option, base, each, node) for base, each in option.members(name)]
            bases = [each for each in option.mro if isinstance(each, str) and each not in values.MODELS]
            is_external = not members and bases and bases[0] != "handlers.Handler"
            found = (External(f"{bases[0]}.{name}"),) if is_external else join(*members) if members else found
        case Attribute():
            found = (Attribute(Instance(owner=option.owner), name),)
    return found


def _of_object(option: Instance, class_: Class, name: str, node: ast.AST) -> Value | None:
    """Return the value of the attribute of an object of the user's, and follow the property that computes it."""
    if name == "__class__":
        return (class_,)
    if name == "__dict__":
        return owned(collection("dict"), option.owner)
    found = [_of_binding(option, base, each, node) for base, each in class_.members(name, option.after)]
    if not found or any(map(values.is_literal, found[0])):
        assigned = _assigned(class_, name)
        found += [owned(assigned, option.owner)] if assigned else []
    return join(*found) if found else None


def _assigned(class_: Class, name: str) -> Value:
    """Return what methods that were followed assigned to an attribute; the constructor always is."""
    checker = class_.scope.checker
    if ("constructor", class_) not in checker.known:
        checker.known["constructor", class_] = ()
        for base, method in class_.members("__init__"):
            if isinstance(method, FunctionNode):
                with checker.following(quietly=True):
                    base.scope.call((base.function(method, instance(class_)),), values.OPEN, method)
    return class_.assigned.get(name, ())


def bound_method(option: Instance | Class, base: Class, node: FunctionNode) -> Function:
    """Return a method that is defined in a base of a class, bound as its decorators say."""
    marks = values.marks(node, base.body_scope)
    if "builtins.staticmethod" in marks:
        return base.function(node)
    if "builtins.classmethod" in marks:
        return base.function(
            node, (option.of if isinstance(option, Instance) and isinstance(option.of, Class) else option,)
        )
    return (
        base.function(node, (replace(option, after=None),))
        if isinstance(option, Instance)
        else base.function(node)
    )


def _of_binding(option: Instance | Class, base: Class, binding: Binding, node: ast.AST) -> Value:
    if isinstance(binding, FunctionNode):
        method = bound_method(option, base, binding)
        function = decorated(method, base.scope)
        marks = values.marks(binding, base.body_scope)
        is_getter = _GETTERS.intersection(marks) or any(mark.endswith("cached_property") for mark in marks)
        return (
            base.scope.call((method,), Arguments(), node)
            if is_getter and isinstance(option, Instance)
            else function
        )
    if isinstance(option, Class) and "enum.Enum" in option.mro:
        return instance(option)
    if (
        isinstance(option, Instance)
        and isinstance(binding, Assigned)
        and binding.annotation
        and base.is_record
    ):
        return owned(annotated(binding.annotation, base.body_scope), option.owner)
    return bound("", binding, base.body_scope, Owner.CLASS)
