"""Follows statements, expressions and calls in the order in which Python would run them."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from itertools import chain

from handlers.lint import library, resolution, rules, values
from handlers.lint.library import call_back, call_special, check_iteration, iterate, orderless
from handlers.lint.resolution import annotated, decorated
from handlers.lint.rules import listed
from handlers.lint.source import Assigned, FunctionNode, imported_names
from handlers.lint.values import (
    Arguments,
    Attribute,
    Class,
    External,
    Function,
    Instance,
    Option,
    Owner,
    Package,
)
from handlers.lint.values import (
    Scope,
    Value,
    collection,
    element_of,
    has_type,
    instance,
    is_unordered,
    join,
    owned,
)

_PASSES = 2
_MOST_CONTEXTS = 12
_COLLECTIONS = listed("builtins.{list tuple set frozenset dict iterator}")
_MADE_ONCE = ast.List | ast.Dict | ast.Set | ast.ListComp | ast.DictComp | ast.SetComp | ast.Call


class Interpreter(Scope):
    """A scope whose source is followed.

    Each kind of expression and statement has a method of its name; the expressions in others are evaluated.
    """

    def evaluate(self, node: ast.expr) -> Value:
        """Return the possible values of an expression, and report what is wrong in it."""
        return getattr(self, f"_{type(node).__name__.lower()}", self._parts)(node) or ()

    def execute(self, body: Sequence[ast.stmt]) -> None:
        """Follow statements one after another."""
        for statement, following in zip(body, (*body[1:], None), strict=False):
            match statement, following:
                case (
                    ast.Assign([ast.Name(name) as target], value),
                    ast.Expr(ast.Call(ast.Attribute(ast.Name(sorted_name), "sort"), keywords=[])),
                ) if name == sorted_name:
                    # The next statement sorts it, so its order until then does not matter.
                    self.bind(target, collection("list", element_of(orderless(value, self))))
                case _:
                    getattr(self, f"_{type(statement).__name__.lower()}", self._parts)(statement)

    def bind(self, target: ast.expr, value: Value) -> None:
        """Bind the names in a target to a value or its parts, and report a target that mutates a shared value."""
        match target:
            case ast.Name(id=name):
                library.check_target(target, self)
                self.names[name] = value
            case ast.Starred(value=inner):
                self.bind(inner, collection("list", element_of(value)))
            case ast.Tuple(elts=members) | ast.List(elts=members):
                # A single member is the first in any order.
                if len(members) != 1 or isinstance(members[0], ast.Starred):
                    check_iteration(value, target, self)
                parts = next((each.parts for each in value if isinstance(each, Instance)), ())
                if len(parts) != len(members):
                    parts = tuple(
                        value if isinstance(each, ast.Starred) else element_of(value) for each in members
                    )
                for each, part in zip(members, parts, strict=True):
                    self.bind(each, part)
            case _:
                if isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Slice):
                    check_iteration(value, target, self)
                library.check_target(target, self, value)

    def _parts(self, node: ast.expr | ast.stmt) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self.evaluate(child)

    # Expressions: their possible values, and the rules that they break.

    def _constant(self, node: ast.Constant) -> Value:
        return values.literal(node.value)

    def _name(self, node: ast.Name) -> Value:
        found = resolution.lookup(node.id, self)
        if found is None:
            return ()
        resolution.check_read(found, node, self)
        if node.id in self.module.changed and self.local(node.id) is None and not self.is_global(node.id):
            self.report("CM808", node, node.id)
        return found

    def _attribute(self, node: ast.Attribute) -> Value:
        return resolution.attribute(self.evaluate(node.value), node.attr, node, self)

    def _lambda(self, node: ast.Lambda) -> Value:
        return (Function(node, self),)

    def _namedexpr(self, node: ast.NamedExpr) -> Value:
        value = self.evaluate(node.value)
        self.bind(node.target, value)
        return value

    def _list(self, node: ast.List | ast.Tuple | ast.Set) -> Value:
        kind = type(node).__name__.lower()
        members = [
            element_of(self.evaluate(each.value))
            if isinstance(each, ast.Starred) and kind == "set"
            else self.evaluate(each)
            for each in node.elts
        ]
        is_row = kind == "tuple" and not any(isinstance(each, ast.Starred) for each in node.elts)
        return collection(kind, join(*members), parts=members if is_row else ())

    _tuple = _set = _list

    def _starred(self, node: ast.Starred) -> Value:
        value = self.evaluate(node.value)
        check_iteration(value, node, self)
        return element_of(value)

    def _dict(self, node: ast.Dict) -> Value:
        keys = [self.evaluate(key) for key in node.keys if key is not None]
        pairs = zip(node.keys, map(self.evaluate, node.values), strict=True)
        return collection(
            "dict", join(*keys), item=join(*(values.item_of(it) if key is None else it for key, it in pairs))
        )

    def _listcomp(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> Value:
        kinds = {"ListComp": "list", "SetComp": "set", "GeneratorExp": "iterator", "DictComp": "dict"}
        kind = kinds[type(node).__name__]
        inside = self.inside(function=self.function)
        is_any = False
        for generator in node.generators:
            iterated = inside.evaluate(generator.iter)
            is_any = is_any or is_unordered(iterated)
            if kind in {"list", "dict"}:
                check_iteration(iterated, generator.iter, self)
            if generator.is_async:
                self.report("CM502", generator.target, "async for")
            inside.bind(generator.target, iterate(iterated, generator.iter))
            for test in generator.ifs:
                inside.evaluate(test)
        if isinstance(node, ast.DictComp):
            return collection(kind, inside.evaluate(node.key), item=inside.evaluate(node.value))
        return collection(kind, inside.evaluate(node.elt), unordered=is_any and kind == "iterator")

    _setcomp = _generatorexp = _dictcomp = _listcomp

    def _binop(self, node: ast.BinOp) -> Value:
        left, right = self.evaluate(node.left), self.evaluate(node.right)
        return library.operate(left, node.op, right, node, self)

    def _compare(self, node: ast.Compare) -> Value:
        left = self.evaluate(node.left)
        for operator, comparator in zip(node.ops, node.comparators, strict=True):
            right = self.evaluate(comparator)
            library.operate(left, operator, right, node, self)
            left = right
        return instance("builtins.bool")

    def _boolop(self, node: ast.BoolOp) -> Value:
        return join(*map(self.evaluate, node.values))

    def _ifexp(self, node: ast.IfExp) -> Value:
        self.evaluate(node.test)
        return join(self.evaluate(node.body), self.evaluate(node.orelse))

    def _subscript(self, node: ast.Subscript) -> Value:
        base, key = self.evaluate(node.value), self.evaluate(node.slice)
        if isinstance(node.slice, ast.Slice):
            return values.fresh(base)
        special = call_special(base, ("__getitem__", "__class_getitem__"), node, key)
        return join(*(self._item(each, key, node) for each in base), special)

    def _item(self, base: Option, key: Value, node: ast.Subscript) -> Value:
        """Return the possible values of a subscript, also of a type, of `sys.modules` and of what `vars` returns."""
        match base, key:
            case External(name="sys.modules"), (Instance(literal=str(name)),):
                return (External(name),)
            case External() | Package(), (Instance(literal=str(name)),):
                return resolution.attribute((base,), name, node, self)
            case External(name=name), _ if name in resolution.KINDS or name.rpartition(".")[2][:1].isupper():
                arguments = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
                return (External(name, tuple(map(self.quietly, arguments))),)
            case Class(), _:
                return (base,)
            case Instance(parts=parts), (Instance(literal=int(place)),) if -len(parts) <= place < len(parts):
                return parts[place]
        return values.item_of((base,))

    def _joinedstr(self, node: ast.JoinedStr) -> Value:
        for part in node.values:
            if not isinstance(part, ast.FormattedValue):
                continue
            value = self.evaluate(part.value)
            call_special(value, library.TEXT_METHODS, part.value)
            library.check_text(value, part.value, self)
            texts = part.format_spec.values if isinstance(part.format_spec, ast.JoinedStr) else []
            if texts and isinstance(texts[-1], ast.Constant) and str(texts[-1].value).endswith("n"):
                self.report("CM304", part.value, f"the format {texts[-1].value!r}")
            for text in texts:
                self._parts(text)
        return values.TEXT

    def _await(self, node: ast.Await) -> Value:
        self.report("CM502", node, "await")
        return self.evaluate(node.value)

    def _yield(self, node: ast.Yield) -> None:
        self.yielded.append(self.evaluate(node.value) if node.value else ())

    def _yieldfrom(self, node: ast.YieldFrom) -> None:
        value = self.evaluate(node.value)
        check_iteration(value, node.value, self)
        self.yielded.append(element_of(value))

    # Statements: followed in their order, both branches of a condition, and loops twice.

    def _import(self, statement: ast.Import | ast.ImportFrom) -> None:
        for name, binding in imported_names(statement):
            self.names[name] = resolution.imported(binding, self)

    _importfrom = _import

    def _global(self, statement: ast.Global) -> None:
        self.globals.update(statement.names)

    def _assign(self, statement: ast.Assign) -> None:
        value = self.evaluate(statement.value)
        for target in statement.targets:
            self.bind(target, value)

    def _annassign(self, statement: ast.AnnAssign) -> None:
        value = self.evaluate(statement.value) if statement.value else ()
        is_open = all(
            isinstance(each, Instance) and each.of in _COLLECTIONS and not each.element for each in value
        )
        declared = annotated(statement.annotation, self) if is_open else ()
        if statement.value:
            self.bind(statement.target, declared or value)

    def _augassign(self, statement: ast.AugAssign) -> None:
        added, target = self.evaluate(statement.value), statement.target
        if not isinstance(target, ast.Name):
            library.check_target(target, self)
            return
        held = self.quietly(target)
        mutable = tuple(each for each in held if has_type((each,), "list", "dict", "set"))
        library.check_changed(mutable, target, self)
        if isinstance(statement.op, ast.Add) and has_type(held, "list"):
            check_iteration(added, statement.value, self)
        with self.checker.following(quietly=True):
            result = library.operate(held, statement.op, added, statement, self)
        self.bind(target, join(held, result))

    def _delete(self, statement: ast.Delete) -> None:
        for target in statement.targets:
            library.check_target(target, self)

    def _return(self, statement: ast.Return) -> None:
        if statement.value is not None:
            self.returned.append(self.evaluate(statement.value))

    def _if(self, statement: ast.If) -> None:
        call_special(self.evaluate(statement.test), ("__bool__", "__len__"), statement.test)
        self._either(lambda: self.execute(statement.body), lambda: self.execute(statement.orelse))

    def _for(self, statement: ast.For | ast.AsyncFor) -> None:
        iterated = self.evaluate(statement.iter)
        if not library.is_indifferent_loop(statement):
            check_iteration(iterated, statement.iter, self)
        if isinstance(statement, ast.AsyncFor):
            self.report("CM502", statement, "async for")

        def once() -> None:
            self.bind(statement.target, iterate(iterated, statement.iter))
            self.execute(statement.body)

        self._repeat(once, statement.orelse)

    _asyncfor = _for

    def _while(self, statement: ast.While) -> None:
        def once() -> None:
            self.evaluate(statement.test)
            self.execute(statement.body)

        self._repeat(once, statement.orelse)

    def _with(self, statement: ast.With | ast.AsyncWith) -> None:
        if isinstance(statement, ast.AsyncWith):
            self.report("CM502", statement, "async with")
        managers = []
        for item in statement.items:
            value = self.evaluate(item.context_expr)
            managers.append(value)
            entered = call_special(value, ("__enter__", "__aenter__"), item.context_expr)
            if item.optional_vars is not None:
                self.bind(item.optional_vars, entered or value)
        self.execute(statement.body)
        for value in managers:
            call_special(value, ("__exit__", "__aexit__"), statement, (), (), ())

    _asyncwith = _with

    def _try(self, statement: ast.Try | ast.TryStar) -> None:
        self._maybe(statement.body)
        for handler in statement.handlers:
            if handler.name:
                self.names[handler.name] = ()
            self._maybe(handler.body)
        self.execute(statement.orelse)
        self.execute(statement.finalbody)

    _trystar = _try

    def _match(self, statement: ast.Match) -> None:
        subject = self.evaluate(statement.subject)
        part = join(*(owned((), each.owner) for each in subject))
        for case in statement.cases:
            for pattern in ast.walk(case.pattern):
                name = getattr(pattern, "rest", None) or getattr(pattern, "name", None)
                if isinstance(name, str):
                    is_whole = pattern is case.pattern or isinstance(case.pattern, ast.MatchOr)
                    self.names[name] = subject if is_whole else part
            if case.guard is not None:
                self.evaluate(case.guard)
            self._maybe(case.body)

    def _functiondef(self, statement: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        function = Function(statement, self)
        self.names[statement.name] = (function,)
        self.names[statement.name] = decorated(function, self)

    _asyncfunctiondef = _functiondef

    def _classdef(self, statement: ast.ClassDef) -> None:
        self.names[statement.name] = (self.class_of(statement),)

    def _either(self, one: Callable[[], None], other: Callable[[], None]) -> None:
        """Follow two branches; afterwards, a name may have its values of either."""
        before = dict(self.names)
        one()
        after_one, self.names = self.names, before
        other()
        for name, value in after_one.items():
            self.names[name] = join(value, self.names.get(name, ()))

    def _maybe(self, body: list[ast.stmt]) -> None:
        self._either(lambda: self.execute(body), lambda: None)

    def _repeat(self, once: Callable[[], None], orelse: list[ast.stmt]) -> None:
        """Follow the body of a loop, once more when it changed the values of names that the next iteration reads."""
        for _ in range(_PASSES):
            before = dict(self.names)
            self._either(once, lambda: None)
            if self.names == before:
                break
        self.execute(orelse)

    # Calls: those of the user's functions and classes are followed, all others are looked up.

    def _call(self, node: ast.Call) -> Value:
        callee = self.evaluate(node.func)
        context = Instance(resolution.CONTEXT)
        if {Attribute(context, "capture"), Attribute(context, "store_document")}.intersection(callee):
            self._record(node)
            return ()
        is_indifferent = library.is_indifferent(callee)
        positional: list[Value] = []
        for argument in node.args:
            if isinstance(argument, ast.Starred):
                given = self.evaluate(argument.value)
                if not is_indifferent:
                    check_iteration(given, argument, self)
            else:
                positional.append(orderless(argument, self) if is_indifferent else self.evaluate(argument))
        named = [(keyword.arg, self.evaluate(keyword.value)) for keyword in node.keywords]
        known = tuple((name, value) for name, value in named if name is not None)
        is_open = len(positional) < len(node.args) or len(known) < len(named)
        return self.call(callee, Arguments(tuple(positional), known, is_open), node)

    def _record(self, node: ast.Call) -> None:
        """Follow only the calls that make the function that is given: what itself does is recorded, so allowed."""
        for argument in (*node.args, *(keyword.value for keyword in node.keywords)):
            if isinstance(argument, ast.Call):
                is_partial = self.quietly(argument.func) == (External("functools.partial"),)
                for each in argument.args[1:] if is_partial else [argument]:
                    self.evaluate(each)

    def call(self, callee: Value, arguments: Arguments, node: ast.AST) -> Value:
        """Return the possible results of a call, and report what is wrong in what is called."""
        results: list[Value] = []
        for option in callee or (Instance(),):
            match option:
                case Function():
                    results.append(self._call_function(option, arguments))
                case Class():
                    results.append(self._instantiate(option, arguments, node))
                case External() | Attribute():
                    results.append(library.call(option, arguments, node, self))
                case Instance(of=Class() as class_) if class_.members("__call__"):
                    results.append(call_special((option,), ("__call__",), node, *arguments.positional))
                case _:
                    call_back(arguments, (), node, self)
        return join(*results)

    def _call_function(self, function: Function, arguments: Arguments) -> Value:
        """Return the possible results of a function; each call with the same arguments is followed once."""
        checker, node, scope = self.checker, function.node, function.scope
        key = ("call", function, arguments, checker.mode)
        contexts = ("contexts", node, checker.mode)
        seen = checker.counts.get(contexts, 0)
        if key not in checker.known and not checker.is_too_deep(node) and seen < _MOST_CONTEXTS:
            checker.counts[contexts] = seen + 1
            inside = scope.inside(function=function)
            with checker.within(function.name, node, inside.module):
                try:
                    _bind(node.args, arguments.after(*function.bound), inside)
                    if isinstance(node, ast.Lambda):
                        inside.returned.append(inside.evaluate(node.body))
                    else:
                        inside.execute(node.body)
                except RecursionError:
                    inside.report("CM901", node, f"{function.name} is nested too deeply")
            result = join(*inside.returned)
            if inside.yielded:
                result = collection("iterator", join(*inside.yielded))
            checker.known[key] = result
        return checker.known.get(key) or annotated(getattr(node, "returns", None), scope)

    def _instantiate(self, class_: Class, arguments: Arguments, node: ast.AST) -> Value:
        """Return an instance, and follow what constructs it."""
        made = instance(class_)
        given_to = {"__new__": arguments, "__init__": arguments, "__post_init__": Arguments()}
        for name, given in {**given_to, "model_post_init": values.OPEN}.items():
            for base, binding in class_.members(name):
                if isinstance(binding, FunctionNode):
                    method = base.function(binding, (class_,) if name == "__new__" else made)
                    self.call((method,), given, node)
        for external in class_.mro if not class_.members("__init__") else ():
            if isinstance(external, str) and (rules.called(external) or external == "random.Random"):
                self.call((External(external),), arguments, node)
        if class_.is_record:
            check_model(class_, frozenset(() if arguments.is_open else dict(arguments.named)), nested=False)
        return made


def _bind(parameters: ast.arguments, arguments: Arguments, scope: Scope) -> None:
    """Bind the parameters of a function to the arguments, their defaults, or what their annotations say."""
    outside = scope.parent or scope
    positional = [*parameters.posonlyargs, *parameters.args]
    defaults: dict[str, ast.expr | None] = {}
    if not arguments.is_open:
        pairs = chain(
            zip(reversed(positional), reversed(parameters.defaults), strict=False),
            zip(parameters.kwonlyargs, parameters.kw_defaults, strict=True),
        )
        defaults = {parameter.arg: default for parameter, default in pairs}
    given, named = list(arguments.positional), dict(arguments.named)
    for parameter in (*positional, *parameters.kwonlyargs):
        is_positional = given and parameter not in parameters.kwonlyargs
        value = given.pop(0) if is_positional else named.pop(parameter.arg, None)
        default = defaults.get(parameter.arg) if value is None else None
        if default is not None:
            value = outside.evaluate(default)
            # A default that can be changed is the same object for all calls.
            value = owned(value, Owner.DEFAULT) if isinstance(default, _MADE_ONCE) else value
        elif not value or all(isinstance(each, Instance) and each.of == "" for each in value):
            value = owned(annotated(parameter.annotation, outside), value[0].owner if value else None)
        scope.names[parameter.arg] = value or ()
    if parameters.vararg:
        scope.names[parameters.vararg.arg] = collection("tuple", join(*given))
    if parameters.kwarg:
        scope.names[parameters.kwarg.arg] = collection("dict", item=join(*named.values()))


# Models: their validators, default factories and upcasters are followed.

_VALIDATORS = listed(
    "pydantic.{field_validator model_validator validator root_validator field_serializer model_serializer}"
)


def check_model(class_: Class, given: frozenset[str] = frozenset(), *, nested: bool = True) -> None:
    """Follow all that decoding a message or state may call, in nested models too; fields that are given need no default."""
    checker = class_.scope.checker
    key = ("model", class_, given, nested, checker.mode)
    if key in checker.known:
        return
    checker.known[key] = ()
    annotations: list[tuple[ast.expr, Scope]] = []
    for base in class_.users_mro:
        scope = base.body_scope
        with checker.within(base.name, base.node, scope.module):
            for name, binding in [(name, each) for name, found in base.bindings.items() for each in found]:
                if isinstance(binding, FunctionNode) and _VALIDATORS.intersection(
                    values.marks(binding, scope)
                ):
                    scope.call(
                        (resolution.bound_method(Instance(class_), base, binding),), values.OPEN, binding
                    )
                elif isinstance(binding, Assigned) and binding.annotation:
                    annotations.append((binding.annotation, scope))
                    _call_functions_in(binding.annotation, scope, is_default=name not in given)
                    if binding.value and name not in given and not _call_functions_in(binding.value, scope):
                        scope.evaluate(binding.value)
    for annotation, scope in annotations if nested else ():
        for node in ast.walk(annotation):
            for option in scope.quietly(node) if isinstance(node, ast.Name | ast.Attribute) else ():
                if isinstance(option, Class):
                    check_model(option)


def _call_functions_in(field: ast.expr, scope: Scope, *, is_default: bool = True) -> bool:
    """Follow the functions that a field's annotation or default names, and return whether there is a factory."""
    has_factory = False
    for node in [each for each in ast.walk(field) if isinstance(each, ast.Call)]:
        callee = scope.quietly(node.func)
        is_validator = any(
            isinstance(each, External) and each.name.endswith(("Validator", "Serializer")) for each in callee
        )
        for keyword in (*(ast.keyword(None, each) for each in node.args), *node.keywords):
            is_factory = is_default and keyword.arg in {"default_factory", "factory"}
            has_factory |= is_factory
            if is_validator or is_factory:
                scope.call(scope.evaluate(keyword.value), values.OPEN, keyword.value)
    return has_factory
