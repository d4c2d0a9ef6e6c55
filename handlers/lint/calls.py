"""Calls: those of the user's functions and classes are followed, all others are looked up."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from handlers.lint import external, hazards, resolution, rules
from handlers.lint.checker import Checker
from handlers.lint.operators import call_back
from handlers.lint.resolution import annotated, is_record, marks_of, members, mro, users_mro
from handlers.lint.source import Assigned, FunctionNode
from handlers.lint.values import (
    UNKNOWN,
    Accessor,
    Arguments,
    Class,
    ClassDefinition,
    External,
    Function,
    FunctionDefinition,
    Instance,
    Method,
    Object,
    Owner,
    Partial,
    Scope,
    Value,
    collection,
    element_of,
    join,
    options,
    owned,
)

# Calls of the user's functions: their bodies are followed with the arguments of the call.

_MOST_CONTEXTS = 12
_MADE_ONCE = ast.List | ast.Dict | ast.Set | ast.ListComp | ast.DictComp | ast.SetComp | ast.Call


def call_function(function: Function, arguments: Arguments, checker: Checker) -> Value:
    """Return the possible results of a function; each call with the same arguments is followed once."""
    definition = function.definition
    if function.bound is not None:
        arguments = arguments.after(function.bound)
    if checker.is_too_deep(definition.node):
        return _declared(definition, checker)
    key = ("call", definition, arguments, checker.mode)
    if key not in checker.known:
        contexts = ("contexts", definition.node, checker.mode)
        seen = checker.counts.get(contexts, 0)
        if seen >= _MOST_CONTEXTS:
            return _declared(definition, checker)
        checker.counts[contexts] = seen + 1
        checker.known[key] = _followed(definition, arguments, checker)
    return checker.known[key]


def _followed(definition: FunctionDefinition, arguments: Arguments, checker: Checker) -> Value:
    inside = Scope(definition.module, definition.scope, function=definition)
    with checker.within(definition.name, definition.node, definition.module):
        try:
            _bind(definition, arguments, inside, checker)
            if isinstance(definition.node, ast.Lambda):
                return checker.evaluate(definition.node.body, inside)
            checker.execute(definition.node.body, inside)
        except RecursionError:
            checker.report(
                "CM901", definition.node, definition.scope, f"{definition.name} is nested too deeply"
            )
    if definition.is_generator:
        return collection("iterator", join(*inside.yielded) if inside.yielded else UNKNOWN)
    given = join(*inside.returned) if inside.returned else UNKNOWN
    return _declared(definition, checker) if given == UNKNOWN else given


def _declared(definition: FunctionDefinition, checker: Checker) -> Value:
    if isinstance(definition.node, ast.Lambda):
        return UNKNOWN
    return annotated(definition.node.returns, definition.scope, checker)


def _bind(definition: FunctionDefinition, arguments: Arguments, scope: Scope, checker: Checker) -> None:
    """Bind the parameters of a function to the arguments, their defaults, or what their annotations say."""
    parameters = definition.node.args
    given = list(arguments.positional)
    named = dict(arguments.named)
    defaults = {} if arguments.is_open else dict(_defaults(parameters))
    for parameter in (*parameters.posonlyargs, *parameters.args, *parameters.kwonlyargs):
        is_positional = given and parameter not in parameters.kwonlyargs
        value = given.pop(0) if is_positional else named.pop(parameter.arg, None)
        if value is None and parameter.arg in defaults:
            scope.names[parameter.arg] = _default(defaults[parameter.arg], definition.scope, checker)
        else:
            scope.names[parameter.arg] = _argument(value or UNKNOWN, parameter, definition.scope, checker)
    if parameters.vararg:
        scope.names[parameters.vararg.arg] = collection("tuple", join(*given) if given else UNKNOWN)
    if parameters.kwarg:
        scope.names[parameters.kwarg.arg] = collection(
            "dict", item=join(*named.values()) if named else UNKNOWN
        )


def _default(node: ast.expr, scope: Scope, checker: Checker) -> Value:
    """Return the value of a default; one that can be changed is the same object for all calls."""
    value = checker.evaluate(node, scope)
    return owned(value, Owner.DEFAULT) if isinstance(node, _MADE_ONCE) else value


def _argument(value: Value, parameter: ast.arg, scope: Scope, checker: Checker) -> Value:
    """Return the value of a parameter: its annotation tells the value of an unknown argument."""
    if all(type(option) is Value for option in options(value)):
        return owned(annotated(parameter.annotation, scope, checker), value.owner)
    return value


def _defaults(parameters: ast.arguments) -> Iterator[tuple[str, ast.expr]]:
    named = [*parameters.posonlyargs, *parameters.args]
    for parameter, default in zip(reversed(named), reversed(parameters.defaults), strict=False):
        yield parameter.arg, default
    for parameter, only in zip(parameters.kwonlyargs, parameters.kw_defaults, strict=True):
        if only is not None:
            yield parameter.arg, only


# Construction of the user's classes: their constructors, validators and default factories are followed.

_CONSTRUCTORS = ("__init__", "__post_init__", "model_post_init")
_VALIDATORS = frozenset(
    f"pydantic.{name}"
    for name in (
        "field_validator",
        "model_validator",
        "validator",
        "root_validator",
        "field_serializer",
        "model_serializer",
    )
)
_IN_ANNOTATIONS = ("Validator", "Serializer")
_FACTORIES = ("default_factory", "factory")


def instantiate(class_: Class, arguments: Arguments, node: ast.AST, scope: Scope, checker: Checker) -> Value:
    """Return an instance, and follow what constructs it."""
    definition = class_.definition
    made = Object(definition)
    for name in ("__new__", *_CONSTRUCTORS):
        for base, binding in members(definition, name, checker):
            if isinstance(binding, FunctionNode):
                given = Arguments(is_open=True) if name.endswith("post_init") else arguments
                given = Arguments() if name == "__post_init__" else given
                bound = class_ if name == "__new__" else made
                checker.call(Function(base.function(binding), bound), given, node, scope)
    _call_external_base(definition, arguments, node, scope, checker)
    if is_record(definition, checker):
        check_fields(definition, None if arguments.is_open else frozenset(dict(arguments.named)), checker)
    return made


def check_fields(definition: ClassDefinition, given: frozenset[str] | None, checker: Checker) -> None:
    """Follow the validators of a model, and the default factories of fields that are not given."""
    key = ("fields", definition, given, checker.mode)
    if key in checker.known:
        return
    checker.known[key] = UNKNOWN
    for base in users_mro(definition, checker):
        with checker.within(base.name, base.node, base.module):
            _check_validators(definition, base, checker)
            _check_defaults(base, given or frozenset(), checker)


def check_model(definition: ClassDefinition, checker: Checker) -> None:
    """Follow all that decoding a message or state may call, in nested models too."""
    check_fields(definition, frozenset(), checker)
    for base in users_mro(definition, checker):
        for name in base.bindings.names:
            for _, binding in members(base, name, checker):
                if isinstance(binding, Assigned) and binding.annotation is not None:
                    _check_nested(binding.annotation, base, definition, checker)


def _check_nested(
    annotation: ast.expr, base: ClassDefinition, outer: ClassDefinition, checker: Checker
) -> None:
    for node in ast.walk(annotation):
        if isinstance(node, ast.Name | ast.Attribute):
            for option in options(checker.quietly(node, base.body_scope)):
                key = ("nested", option)
                if isinstance(option, Class) and option.definition is not outer and key not in checker.known:
                    checker.known[key] = UNKNOWN
                    check_model(option.definition, checker)


def _check_validators(definition: ClassDefinition, base: ClassDefinition, checker: Checker) -> None:
    for bindings in base.bindings.names.values():
        for binding in bindings:
            if isinstance(binding, FunctionNode) and _VALIDATORS.intersection(
                marks_of(base, binding, checker)
            ):
                marks = marks_of(base, binding, checker)
                is_static = "builtins.staticmethod" in marks
                receiver = Class(definition) if "builtins.classmethod" in marks else Object(definition)
                function = Function(base.function(binding), None if is_static else receiver)
                checker.call(function, Arguments(is_open=True), binding, base.body_scope)
            if isinstance(binding, Assigned) and binding.annotation is not None:
                _check_annotation(binding.annotation, base.body_scope, checker)


def _check_annotation(annotation: ast.expr, scope: Scope, checker: Checker) -> None:
    """Follow the functions that `Annotated[...]` names."""
    for node in ast.walk(annotation):
        if isinstance(node, ast.Call):
            callee = checker.quietly(node.func, scope)
            if isinstance(callee, External) and callee.name.endswith(_IN_ANNOTATIONS):
                for argument in (*node.args, *(keyword.value for keyword in node.keywords)):
                    _call_back(argument, scope, checker)


def _check_defaults(base: ClassDefinition, given: frozenset[str], checker: Checker) -> None:
    for name, bindings in base.bindings.names.items():
        for binding in bindings:
            if name in given or not isinstance(binding, Assigned) or binding.annotation is None:
                continue
            for node in ast.walk(binding.annotation):
                _check_factories(node, base.body_scope, checker)
            if binding.value is not None and not _check_factories(binding.value, base.body_scope, checker):
                checker.evaluate(binding.value, base.body_scope)


def _check_factories(node: ast.AST, scope: Scope, checker: Checker) -> bool:
    """Follow the factory of a default, and return whether there is one."""
    found = (
        [keyword for keyword in node.keywords if keyword.arg in _FACTORIES]
        if isinstance(node, ast.Call)
        else []
    )
    for keyword in found:
        _call_back(keyword.value, scope, checker)
    return bool(found)


def _call_back(node: ast.expr, scope: Scope, checker: Checker) -> None:
    checker.call(checker.evaluate(node, scope), Arguments(is_open=True), node, scope)


def _call_external_base(
    definition: ClassDefinition, arguments: Arguments, node: ast.AST, scope: Scope, checker: Checker
) -> None:
    has_own = any(True for _ in members(definition, "__init__", checker))
    for base in mro(definition, checker):
        if isinstance(base, str) and not has_own and (rules.called(base) or base == "random.Random"):
            checker.call(External(base), arguments, node, scope)


_RECORDING = frozenset({"capture", "store_document"})
"""The methods of a context that record what a function returns."""


def evaluate_call(node: ast.Call, scope: Scope, checker: Checker) -> Value:
    """Return the possible results of a call in the source."""
    callee = checker.evaluate(node.func, scope)
    if _is_recorded(callee):
        return _recorded(node, scope, checker)
    arguments = _arguments(node, scope, checker, is_indifferent=hazards.is_indifferent(callee))
    return checker.call(callee, arguments, node, scope)


def call(callee: Value, arguments: Arguments, node: ast.AST, scope: Scope, checker: Checker) -> Value:
    """Return the possible results of calling one value."""
    match callee:
        case Function():
            return call_function(callee, arguments, checker)
        case Class():
            return instantiate(callee, arguments, node, scope, checker)
        case Object():
            method = resolution.of_object(callee, "__call__", node, checker)
            return UNKNOWN if isinstance(method, Method) else checker.call(method, arguments, node, scope)
        case External():
            return external.call(callee, arguments, node, scope, checker)
        case Method():
            hazards.check_method(callee, arguments, node, scope, checker)
            call_back(arguments, element_of(callee.receiver), node, scope, checker)
            return external.call_method(callee, arguments, node, scope, checker)
        case Partial():
            return checker.call(callee.function, arguments.after(*callee.positional), node, scope)
        case Accessor():
            return _call_accessor(callee, arguments, node, scope, checker)
        case _:
            call_back(arguments, UNKNOWN, node, scope, checker)
            return UNKNOWN


def _call_accessor(
    accessor: Accessor, arguments: Arguments, node: ast.AST, scope: Scope, checker: Checker
) -> Value:
    found = arguments.first()
    for name in accessor.name.split("."):
        found = resolution.attribute(found, name, node, scope, checker)
    return checker.call(found, Arguments(), node, scope) if accessor.calls else found


def _is_recorded(callee: Value) -> bool:
    return any(
        isinstance(each, Method)
        and each.name in _RECORDING
        and isinstance(each.receiver, Instance)
        and each.receiver.of == resolution.CONTEXT
        for each in options(callee)
    )


def _recorded(node: ast.Call, scope: Scope, checker: Checker) -> Value:
    """Follow only the calls that make the function that is given: what it does itself is recorded, and so allowed."""
    for argument in (*node.args, *(keyword.value for keyword in node.keywords)):
        if isinstance(argument, ast.Call):
            callee = checker.quietly(argument.func, scope)
            is_partial = isinstance(callee, External) and callee.name == "functools.partial"
            for each in argument.args[1:] if is_partial else [argument]:
                checker.evaluate(each, scope)
    return UNKNOWN


def _arguments(node: ast.Call, scope: Scope, checker: Checker, *, is_indifferent: bool) -> Arguments:
    positional: list[Value] = []
    is_open = False
    for argument in node.args:
        if isinstance(argument, ast.Starred):
            given = checker.evaluate(argument.value, scope)
            if not is_indifferent:
                hazards.check_iteration(given, argument, scope, checker)
            is_open = True
        elif is_indifferent:
            positional.append(hazards.orderless(argument, scope, checker))
        else:
            positional.append(checker.evaluate(argument, scope))
    named = []
    for keyword in node.keywords:
        value = checker.evaluate(keyword.value, scope)
        if keyword.arg is None:
            is_open = True
        else:
            named.append((keyword.arg, value))
    return Arguments(tuple(positional), tuple(named), is_open)
