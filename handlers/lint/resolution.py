"""Names, annotations and attributes resolved to the values that they may have."""

from __future__ import annotations

import ast
import builtins
import importlib
import sys
from collections.abc import Iterator
from functools import cache

from handlers.lint import rules, values
from handlers.lint.rules import listed
from handlers.lint.source import Assigned, Binding, FunctionNode, Imported, SourceModule, parse_expression
from handlers.lint.values import UNKNOWN, Class, External, Function, Instance, Method, Scope, Value, join

# Annotations: the values that an annotated name may have.

_KINDS = {
    name: kind
    for kind, names in {
        "set": "builtins.set typing.Set typing.MutableSet",
        "frozenset": "builtins.frozenset typing.AbstractSet typing.FrozenSet",
        "list": "builtins.list typing.List typing.Sequence typing.MutableSequence typing.Collection typing.Deque "
        "collections.deque",
        "tuple": "builtins.tuple typing.Tuple",
        "dict": "builtins.dict typing.Dict typing.Mapping typing.MutableMapping typing.DefaultDict typing.Counter "
        "collections.defaultdict collections.OrderedDict collections.Counter",
        "iterator": "typing.Iterable typing.Iterator typing.Generator",
    }.items()
    for name in names.split()
}
_TRANSPARENT = listed("Annotated Final ClassVar Optional Required NotRequired ReadOnly", "typing.")


def annotated(node: ast.expr | None, scope: Scope) -> Value:
    """Return the values that a name with this annotation may have."""
    match node:
        case ast.Constant(value=str(text)):
            return annotated(parse_expression(text), scope)
        case ast.BinOp(op=ast.BitOr(), left=left, right=right):
            return join(annotated(left, scope), annotated(right, scope))
        case ast.Subscript(value=generic, slice=inside):
            arguments = inside.elts if isinstance(inside, ast.Tuple) else [inside]
            return _subscripted(scope.quietly(generic), arguments, scope)
        case ast.Name() | ast.Attribute():
            type_ = scope.quietly(node)
            if isinstance(node, ast.Name) and not isinstance(type_, Class | External):
                return _alias(node.id, scope)
            return _instance_of(type_)
    return UNKNOWN


def _instance_of(type_: Value) -> Value:
    match type_:
        case Class(definition=definition):
            return values.Object(definition)
        case External(name=name):
            return values.collection(_KINDS[name]) if name in _KINDS else Instance(name)
    return UNKNOWN


def _alias(name: str, scope: Scope) -> Value:
    """Return an instance of the type that a name at the top of the module stands for."""
    for binding in scope.module.bindings.names.get(name, ()):
        assigned = binding.value if isinstance(binding, Assigned) else None
        if assigned is not None and not scope.checker.is_too_deep(assigned):
            with scope.checker.within(name, assigned, scope.module):
                return annotated(assigned, scope.checker.top(scope.module))
    return UNKNOWN


def _subscripted(generic: Value, arguments: list[ast.expr], scope: Scope) -> Value:
    if not isinstance(generic, External):
        return _instance_of(generic)
    if generic.name in _TRANSPARENT:
        return annotated(arguments[0], scope)
    kind = _KINDS.get(generic.name)
    members = [annotated(each, scope) for each in arguments]
    if kind is None:
        return join(*members) if generic.name == "typing.Union" else Instance(generic.name)
    match kind, arguments:
        case "dict", [_, _]:
            return values.collection("dict", members[0], item=members[1])
        case "tuple", [*_, last] if not (isinstance(last, ast.Constant) and last.value is ...):
            return values.row(*members)
    return values.collection(kind, *members[:1])


# Lookup: the values that a name may have, through scopes, class bodies, modules and their imports.


def lookup(name: str, scope: Scope) -> Value | None:
    """Return the value of a name, None when there is no such name."""
    found = scope.local(name)
    if found is None and scope.body_of is not None:
        # A name of a class body, as other statements of that body see it.
        definition = scope.body_of
        in_body = [
            Function(definition.function(each)) if isinstance(each, FunctionNode)
            else bound(name, each, definition.body_scope, values.Owner.CLASS)
            for each in definition.bindings.names.get(name, ())
        ]  # fmt: skip
        found = join(*in_body) if in_body else None
    if found is None:
        found = _top_name(name, scope.module, scope)
    if found is None and hasattr(builtins, name):
        return External(f"builtins.{name}")
    return found


def _top_name(name: str, module: SourceModule, scope: Scope) -> Value | None:
    """Return the value of a name at the top of a module, None when there is no such name."""
    checker = scope.checker
    key = ("name", module, name, checker.mode)
    if key not in checker.known:
        checker.known[key] = UNKNOWN  # for a name that is defined by itself
        bindings = module.bindings.names.get(name, [])
        found = [bound(name, each, checker.top(module), values.Owner.MODULE) for each in bindings]
        value = join(*found) if found else _from_stars(name, module, scope)
        if value is None:
            del checker.known[key]
            return None
        checker.known[key] = value
    return checker.known[key]


def _from_stars(name: str, module: SourceModule, scope: Scope) -> Value | None:
    modules = scope.checker.modules
    for star in module.bindings.stars:
        source = modules.near(module, star.module, star.level) if star.level else modules.find(star.module)
        if source is not None:
            found = _top_name(name, source, scope)
            if found is not None:
                return found
        elif name in _public_names(star.module):
            return External(rules.canonical(f"{star.module}.{name}"))
    return None


@cache
def _public_names(module: str) -> frozenset[str]:
    """Return what a star imports from a module for which there are rules, or that the linter imports itself."""
    top = module.partition(".")[0]
    if top not in {"handlers", "pydantic"} and top not in rules.STAR_MODULES & sys.stdlib_module_names:
        return frozenset()
    try:
        found = vars(importlib.import_module(module))
    except ImportError:  # some modules exist on other operating systems only
        return frozenset()
    return frozenset(found.get("__all__", [name for name in found if not name.startswith("_")]))


def bound(name: str, binding: Binding, scope: Scope, owner: values.Owner) -> Value:
    """Return the value that one binding gives a name of a module or class body."""
    if isinstance(binding, Imported):
        return imported(binding, scope)
    if isinstance(binding, ast.ClassDef):
        return Class(scope.class_of(binding))
    if isinstance(binding, FunctionNode):
        return decorated(Function(scope.function_of(binding)), scope)
    value = annotated(binding.annotation, scope)
    if binding.value is not None and not scope.checker.is_too_deep(binding.value):
        with scope.checker.within(name, binding.value, scope.module), scope.checker.importing():
            given = scope.evaluate(binding.value)
        given = values.element_of(given) if binding.is_part else given
        if isinstance(given, values.Constant):
            value = join(given, value)
        elif given != UNKNOWN:
            value = given
    is_shared = (values.Collection, values.Object, Instance)
    return join(*(
        values.owned(each, owner) if isinstance(each, is_shared) or type(each) is Value else each
        for each in values.options(value)
    ))  # fmt: skip


def imported(binding: Imported, scope: Scope) -> Value:
    """Return the value that an import binds."""
    modules, name = scope.checker.modules, binding.attribute
    if binding.level:
        found = modules.near(scope.module, binding.module, binding.level)
        if found is None:
            return UNKNOWN
    else:
        found = modules.find(binding.module)
        if found is None:
            return External(rules.canonical(".".join(filter(None, (binding.module, name)))))
    return values.Package(found) if name is None else _in_package(found, name, scope)


def _in_package(module: SourceModule, name: str, scope: Scope) -> Value:
    found = _top_name(name, module, scope)
    if found is not None:
        return found
    inside = scope.checker.modules.inside(module, name)
    return values.Package(inside) if inside else UNKNOWN


def decorated(function: Function, scope: Scope) -> Value:
    """Return the value of a function's name: the function, or what the user's decorators return for it."""
    node = function.definition.node
    if isinstance(node, ast.Lambda):
        return function
    if function.definition.is_shared and not scope.checker.is_importing:
        with scope.checker.importing():
            return decorated(function, scope)
    value: Value = function
    for decorator in reversed(node.decorator_list):
        for option in values.options(scope.evaluate(decorator)):
            if isinstance(option, External) and rules.called(option.name) == "CM804":
                scope.report("CM804", decorator, option.name)
            elif isinstance(option, Function | Class):
                made = scope.call(option, values.Arguments((value,)), decorator)
                value = made if isinstance(made, Function) else value
    return value


# Attributes.

CONTEXT = "handlers.Context"
_OF_CONTEXT: dict[str, Value] = {
    "now": Instance("datetime.datetime"),
    "random": Instance("random.Random"),
    "message_id": values.TEXT,
    "business_id": values.TEXT,
    "headers": values.collection("dict", values.TEXT),
}
_GETTERS = listed("builtins.property functools.cached_property pydantic.computed_field typing.override")


def attribute(base: Value, name: str, node: ast.AST, scope: Scope) -> Value:
    """Return the possible values of an attribute, and report one that a handler must not read."""
    if name == "__call__":
        return base
    return join(*(_attribute(each, name, node, scope) for each in values.options(base)))


def check_read(value: Value, node: ast.AST, scope: Scope) -> None:
    """Report a name of a library that a handler must not read."""
    for option in values.options(value):
        if isinstance(option, External) and (code := rules.read(option.name)):
            scope.report(code, node, option.name)


def _attribute(value: Value, name: str, node: ast.AST, scope: Scope) -> Value:
    match value:
        case External(name=module):
            read = External(
                f"{module}.__dict__" if name == "__dict__" else rules.canonical(f"{module}.{name}")
            )
            check_read(read, node, scope)
            return read
        case Instance():
            return _of_instance(value, name, node, scope)
        case values.Package():
            return value if name == "__dict__" else _in_package(value.module, name, scope)
        case values.Object():
            found = of_object(value, name, node)
            is_free = isinstance(found, Method) and not found.owner
            return values.owned(found, value.owner) if is_free else found
        case Class():
            return _of_class(value, name)
        case values.Super():
            return _of_super(value, name)
        case Method():
            value = Value(owner=value.owner)
    return Method(value, name, owner=value.owner)


def _of_instance(value: Instance, name: str, node: ast.AST, scope: Scope) -> Value:
    match value.of, name:
        case "handlers.Context", _ if name in _OF_CONTEXT:
            if name == "random":
                scope.report("CM206", node, "context.random")
            return _OF_CONTEXT[name]
        case "pathlib.Path", "parent":
            return value
        case "pathlib.Path", "parents":
            return values.collection("tuple", value)
        case _, "__class__":
            return External(value.of)
    return Method(value, name, owner=value.owner)


def of_object(value: values.Object, name: str, node: ast.AST) -> Value:
    """Return the value of the attribute of an object of the user's, and follow the property that computes it."""
    definition = value.definition
    if name == "__class__":
        return Class(definition)
    if name == "__dict__":
        return values.owned(values.collection("dict"), value.owner)
    found = [_of_binding(value, base, binding, node) for base, binding in definition.members(name)]
    if not found or isinstance(found[0], values.Constant):
        found += [values.owned(each, value.owner) for each in _assigned_by_methods(definition, name)]
    return join(*found) if found else Method(value, name)


def bound_method(value: values.Object, base: values.ClassDefinition, node: FunctionNode) -> Function:
    """Return a method that is defined in a base of an object's class, bound as its decorators say."""
    marks = base.marks_of(node)
    receiver = Class(value.definition) if "builtins.classmethod" in marks else value
    return Function(base.function(node), None if "builtins.staticmethod" in marks else receiver)


def _of_binding(value: values.Object, base: values.ClassDefinition, binding: Binding, node: ast.AST) -> Value:
    if isinstance(binding, FunctionNode):
        marks, method = base.marks_of(binding), bound_method(value, base, binding)
        function = decorated(method, base.scope)
        if _GETTERS.intersection(marks) or any(mark.endswith("cached_property") for mark in marks):
            return base.scope.call(method, values.Arguments(), node)
        return function
    if isinstance(binding, Assigned) and binding.annotation is not None and base.is_record:
        return values.owned(annotated(binding.annotation, base.body_scope), value.owner)
    return bound("", binding, base.body_scope, values.Owner.CLASS)


def _assigned_by_methods(definition: values.ClassDefinition, name: str) -> Iterator[Value]:
    """Yield what the methods of a class assign to an attribute of any name: of their first argument, most often."""
    for base in definition.users_mro:
        for method in base.node.body:
            if not isinstance(method, ast.FunctionDef):
                continue
            scope = base.scope.inside(function=base.function(method))
            for parameter in (*method.args.posonlyargs, *method.args.args, *method.args.kwonlyargs):
                scope.names[parameter.arg] = annotated(parameter.annotation, base.scope)
            for node in ast.walk(method):
                match node:
                    case ast.Assign([ast.Attribute(ast.Name(), attr)], assigned) if attr == name:
                        if not scope.checker.is_too_deep(node):
                            with scope.checker.within("", node, scope.module):
                                value = scope.quietly(assigned)
                            yield value
                    case ast.AnnAssign(ast.Attribute(ast.Name(), attr), annotation) if attr == name:
                        yield annotated(annotation, scope)


def _of_class(value: Class, name: str) -> Value:
    found: list[Value] = []
    for base, binding in value.definition.members(name):
        if isinstance(binding, FunctionNode):
            receiver = value if "builtins.classmethod" in base.marks_of(binding) else None
            found.append(decorated(Function(base.function(binding), receiver), base.scope))
        elif "enum.Enum" in value.definition.mro:
            found.append(values.Object(value.definition))
        else:
            found.append(bound(name, binding, base.body_scope, values.Owner.CLASS))
    if found:
        return join(*found)
    for base_name in value.definition.mro:
        if isinstance(base_name, str) and base_name not in {*values.MODELS, "handlers.Handler"}:
            return External(f"{base_name}.{name}")
    return Method(value, name)


def _of_super(value: values.Super, name: str) -> Value:
    bases = (value.bound.definition if isinstance(value.bound, values.Object | Class) else value.after).mro
    for base in bases[bases.index(value.after) + 1 :] if value.after in bases else ():
        if isinstance(base, values.ClassDefinition):
            for binding in base.bindings.names.get(name, ()):
                if isinstance(binding, FunctionNode):
                    return Function(base.function(binding), value.bound)
        elif base != "builtins.object":
            break
    return Method(value.bound, name)
