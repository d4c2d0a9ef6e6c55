"""Lookup: the values that a name may have, through scopes, class bodies, modules and their imports."""

from __future__ import annotations

import ast
import builtins
import importlib
import sys
from functools import cache

from handlers.lint import names
from handlers.lint.checker import Checker
from handlers.lint.resolution.annotations import annotated
from handlers.lint.resolution.decorators import decorated
from handlers.lint.source.bindings import Assigned, Binding, FunctionNode, Imported
from handlers.lint.source.modules import SourceModule
from handlers.lint.values import (
    UNKNOWN,
    Class,
    ClassDefinition,
    Collection,
    Constant,
    External,
    Function,
    Instance,
    Object,
    Owner,
    Package,
    Scope,
    Value,
    element_of,
    join,
    options,
    owned,
)

_SHARED = (Collection, Object, Instance)
_OWN_STARS = frozenset({names.FRAMEWORK, "pydantic"})


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
            return External(names.canonical(dotted))
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
            return External(names.canonical(f"{star.module}.{name}"))
    return None


@cache
def _public_names(module: str) -> frozenset[str]:
    """Return what a star imports from a module for which there are rules, or that the linter imports itself."""
    top = module.partition(".")[0]
    if top not in _OWN_STARS and top not in names.STAR_MODULES & sys.stdlib_module_names:
        return frozenset()
    try:
        found = vars(importlib.import_module(module))
    except ImportError:  # some modules exist on other operating systems only
        return frozenset()
    return frozenset(found.get("__all__", [name for name in found if not name.startswith("_")]))
