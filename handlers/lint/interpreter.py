"""Follows statements, expressions and calls in the order in which Python would run them."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from itertools import chain

from handlers.lint import hazards, library, resolution, rules, values
from handlers.lint.hazards import bind_target, check_iteration
from handlers.lint.library import call_back, call_special, iterate
from handlers.lint.resolution import annotated, decorated
from handlers.lint.rules import listed
from handlers.lint.source import Assigned, Binding, FunctionNode, imported_names
from handlers.lint.values import UNKNOWN, Arguments, External, Value, collection, join, options

_PASSES = 2
_MOST_CONTEXTS = 12
_MADE_ONCE = ast.List | ast.Dict | ast.Set | ast.ListComp | ast.DictComp | ast.SetComp | ast.Call


class Interpreter(values.Scope):
    """A scope whose source is followed.

    Each kind of expression and statement has a method of its name; the expressions in others are evaluated.
    """

    def evaluate(self, node: ast.expr) -> Value:
        """Return the possible values of an expression, and report what is wrong in it."""
        follow = getattr(self, f"_{type(node).__name__.lower()}", self._parts)
        value: Value | None = follow(node)
        return value or UNKNOWN

    def execute(self, body: Sequence[ast.stmt]) -> None:
        """Follow statements one after another."""
        for statement, following in zip(body, (*body[1:], None), strict=False):
            match statement, following:
                case (
                    ast.Assign([ast.Name(name) as target], value),
                    ast.Expr(ast.Call(ast.Attribute(ast.Name(sorted_name), "sort"), keywords=[])),
                ) if name == sorted_name:
                    # The next statement sorts it, so its order until then does not matter.
                    ordered = collection("list", values.element_of(hazards.orderless(value, self)))
                    bind_target(target, ordered, self)
                case _:
                    getattr(self, f"_{type(statement).__name__.lower()}", self._parts)(statement)

    def call(self, callee: Value, arguments: Arguments, node: ast.AST) -> Value:
        """Return the possible results of a call, and report what is wrong in what is called."""
        return join(*(self._call_one(each, arguments, node) for each in options(callee)))

    def _parts(self, node: ast.expr | ast.stmt) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self.evaluate(child)

    # Expressions: their possible values, and the rules that they break.

    def _constant(self, node: ast.Constant) -> Value:
        return values.Constant(node.value)

    def _name(self, node: ast.Name) -> Value:
        found = resolution.lookup(node.id, self)
        if found is None:
            return UNKNOWN
        resolution.check_read(found, node, self)
        if node.id in self.module.changed and self.local(node.id) is None and not self.is_global(node.id):
            self.report("CM808", node, node.id)
        return found

    def _attribute(self, node: ast.Attribute) -> Value:
        return resolution.attribute(self.evaluate(node.value), node.attr, node, self)

    def _lambda(self, node: ast.Lambda) -> Value:
        return values.Function(values.FunctionDefinition(node, self))

    def _namedexpr(self, node: ast.NamedExpr) -> Value:
        value = self.evaluate(node.value)
        bind_target(node.target, value, self)
        return value

    def _list(self, node: ast.List | ast.Tuple | ast.Set) -> Value:
        kind = type(node).__name__.lower()
        members = []
        for each in node.elts:
            if isinstance(each, ast.Starred) and kind == "set":
                members.append(values.element_of(self.evaluate(each.value)))
            else:
                members.append(self.evaluate(each))
        if kind == "tuple" and not any(isinstance(each, ast.Starred) for each in node.elts):
            return values.row(*members)
        return collection(kind, join(*members))

    _tuple = _set = _list

    def _starred(self, node: ast.Starred) -> Value:
        value = self.evaluate(node.value)
        check_iteration(value, node, self)
        return values.element_of(value)

    def _dict(self, node: ast.Dict) -> Value:
        keys = [self.evaluate(key) for key in node.keys if key is not None]
        pairs = zip(node.keys, map(self.evaluate, node.values), strict=True)
        items = [values.item_of(given) if key is None else given for key, given in pairs]
        return collection("dict", join(*keys), item=join(*items))

    def _listcomp(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp) -> Value:
        kind = {ast.ListComp: "list", ast.SetComp: "set", ast.GeneratorExp: "iterator"}[type(node)]
        inside = self.inside(function=self.function)
        is_any = inside._follow_generators(node.generators, is_ordered=kind == "list")  # noqa: SLF001 - its own class
        return collection(kind, inside.evaluate(node.elt), unordered=is_any and kind == "iterator")

    _setcomp = _generatorexp = _listcomp

    def _dictcomp(self, node: ast.DictComp) -> Value:
        inside = self.inside(function=self.function)
        inside._follow_generators(node.generators, is_ordered=True)  # noqa: SLF001 - its own class
        key = inside.evaluate(node.key)
        return collection("dict", key, item=inside.evaluate(node.value))

    def _follow_generators(self, generators: list[ast.comprehension], *, is_ordered: bool) -> bool:
        """Bind the targets of a comprehension, and return whether what it iterates over is unordered."""
        is_any = False
        for generator in generators:
            iterated = self.evaluate(generator.iter)
            is_any = is_any or values.is_unordered(iterated)
            if is_ordered:
                check_iteration(iterated, generator.iter, self)
            if generator.is_async:
                self.report("CM502", generator.target, "async for")
            bind_target(generator.target, iterate(iterated, generator.iter), self)
            for test in generator.ifs:
                self.evaluate(test)
        return is_any

    def _binop(self, node: ast.BinOp) -> Value:
        left, right = self.evaluate(node.left), self.evaluate(node.right)
        return library.operate(left, node.op, right, node, self)

    def _compare(self, node: ast.Compare) -> Value:
        left = self.evaluate(node.left)
        for operator, comparator in zip(node.ops, node.comparators, strict=True):
            right = self.evaluate(comparator)
            library.compare(left, operator, right, node)
            left = right
        return values.Instance("builtins.bool")

    def _boolop(self, node: ast.BoolOp) -> Value:
        return join(*map(self.evaluate, node.values))

    def _ifexp(self, node: ast.IfExp) -> Value:
        self.evaluate(node.test)
        return join(self.evaluate(node.body), self.evaluate(node.orelse))

    def _subscript(self, node: ast.Subscript) -> Value:
        base, key = self.evaluate(node.value), self.evaluate(node.slice)
        if isinstance(node.slice, ast.Slice):
            return values.fresh(base) if isinstance(base, values.Collection) else base
        special = call_special(base, ("__getitem__", "__class_getitem__"), node, key)
        return join(*(self._item(each, key, node) for each in options(base)), special)

    def _item(self, base: Value, key: Value, node: ast.Subscript) -> Value:
        """Return the possible values of a subscript, also of `sys.modules` and of the `__dict__` of a module."""
        match base, key:
            case External(name="sys.modules"), values.Constant(value=str(name)):
                return External(name)
            case External(name=module), values.Constant(value=str(name)) if module.endswith(".__dict__"):
                return resolution.attribute(External(module.removesuffix(".__dict__")), name, node, self)
            case values.Package(), values.Constant(value=str(name)):
                return resolution.attribute(base, name, node, self)
            case values.Collection(parts=parts), values.Constant(value=int(place)):
                return parts[place] if -len(parts) <= place < len(parts) else values.item_of(base)
        return values.item_of(base)

    def _joinedstr(self, node: ast.JoinedStr) -> Value:
        for part in node.values:
            if not isinstance(part, ast.FormattedValue):
                continue
            value = self.evaluate(part.value)
            call_special(value, library.TEXT_METHODS, part.value)
            hazards.check_text(value, part.value, self)
            texts = part.format_spec.values if isinstance(part.format_spec, ast.JoinedStr) else []
            if texts and isinstance(texts[-1], ast.Constant) and str(texts[-1].value).endswith("n"):
                self.report("CM304", part.value, f"the format {texts[-1].value!r}")
            for text in texts:
                if isinstance(text, ast.FormattedValue):
                    self.evaluate(text.value)
        return values.TEXT

    def _await(self, node: ast.Await) -> Value:
        self.report("CM502", node, "await")
        return self.evaluate(node.value)

    def _yield(self, node: ast.Yield) -> None:
        if node.value is not None:
            self.yielded.append(self.evaluate(node.value))

    def _yieldfrom(self, node: ast.YieldFrom) -> None:
        value = self.evaluate(node.value)
        check_iteration(value, node.value, self)
        self.yielded.append(values.element_of(value))

    # Statements: followed in their order, both branches of a condition, and loops twice.

    def _import(self, statement: ast.Import | ast.ImportFrom) -> None:
        for name, binding in imported_names(statement):
            if name != "*":
                self.bind(name, resolution.imported(binding, self))

    _importfrom = _import

    def _global(self, statement: ast.Global) -> None:
        self.globals.update(statement.names)

    def _nonlocal(self, statement: ast.Nonlocal) -> None:
        self.nonlocals.update(statement.names)

    def _assign(self, statement: ast.Assign) -> None:
        value = self.evaluate(statement.value)
        for target in statement.targets:
            bind_target(target, value, self)

    def _annassign(self, statement: ast.AnnAssign) -> None:
        if statement.value is None:
            return
        value = self.evaluate(statement.value)
        declared = annotated(statement.annotation, self)
        is_open = value == UNKNOWN or (isinstance(value, values.Collection) and value.element == UNKNOWN)
        is_declared = is_open and declared != UNKNOWN
        bind_target(statement.target, values.owned(declared, value.owner) if is_declared else value, self)

    def _augassign(self, statement: ast.AugAssign) -> None:
        added = self.evaluate(statement.value)
        target = statement.target
        held = self.quietly(target)
        if not isinstance(target, ast.Name):
            hazards.check_target(target, self)
            return
        for option in options(held):
            if isinstance(option, values.Collection) and option.kind in {"list", "dict", "set"}:
                hazards.check_changed(option, target, self)
        operation = ast.BinOp(ast.Name(target.id, ast.Load()), statement.op, statement.value)
        result = self.quietly(ast.fix_missing_locations(ast.copy_location(operation, statement)))
        if isinstance(statement.op, ast.Add) and isinstance(held, values.Collection) and held.kind == "list":
            check_iteration(added, statement.value, self)
        bind_target(target, join(held, result), self)

    def _delete(self, statement: ast.Delete) -> None:
        for target in statement.targets:
            hazards.check_target(target, self)

    def _return(self, statement: ast.Return) -> None:
        if statement.value is not None:
            self.returned.append(self.evaluate(statement.value))

    def _if(self, statement: ast.If) -> None:
        call_special(self.evaluate(statement.test), ("__bool__", "__len__"), statement.test)
        self._either(lambda: self.execute(statement.body), lambda: self.execute(statement.orelse))

    def _for(self, statement: ast.For | ast.AsyncFor) -> None:
        iterated = self.evaluate(statement.iter)
        if not hazards.is_indifferent_loop(statement):
            check_iteration(iterated, statement.iter, self)
        if isinstance(statement, ast.AsyncFor):
            self.report("CM502", statement, "async for")

        def once() -> None:
            bind_target(statement.target, iterate(iterated, statement.iter), self)
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
                bind_target(item.optional_vars, value if entered == UNKNOWN else entered, self)
        self.execute(statement.body)
        for value in managers:
            call_special(value, ("__exit__", "__aexit__"), statement, UNKNOWN, UNKNOWN, UNKNOWN)

    _asyncwith = _with

    def _try(self, statement: ast.Try | ast.TryStar) -> None:
        self._maybe(statement.body)
        for handler in statement.handlers:
            if handler.name:
                self.bind(handler.name, UNKNOWN)
            self._maybe(handler.body)
        self.execute(statement.orelse)
        self.execute(statement.finalbody)

    _trystar = _try

    def _match(self, statement: ast.Match) -> None:
        subject = self.evaluate(statement.subject)
        for case in statement.cases:
            for pattern in ast.walk(case.pattern):
                name = getattr(pattern, "rest", None) or getattr(pattern, "name", None)
                if isinstance(name, str):
                    is_whole = pattern is case.pattern or isinstance(case.pattern, ast.MatchOr)
                    self.bind(name, subject if is_whole else Value(owner=subject.owner))
            if case.guard is not None:
                self.evaluate(case.guard)
            self._maybe(case.body)

    def _functiondef(self, statement: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        function = values.Function(values.FunctionDefinition(statement, self))
        self.bind(statement.name, function)
        self.bind(statement.name, decorated(function, self))

    _asyncfunctiondef = _functiondef

    def _classdef(self, statement: ast.ClassDef) -> None:
        self.bind(statement.name, values.Class(self.class_of(statement)))

    def _either(self, one: Callable[[], None], other: Callable[[], None]) -> None:
        """Follow two branches; afterwards, a name may have its values of either."""
        before = dict(self.names)
        one()
        after_one, self.names = self.names, before
        other()
        for name, value in after_one.items():
            here = self.names.get(name)
            self.names[name] = value if here is None or here == value else join(value, here)

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
        if any(
            isinstance(each, values.Method)
            and each.name in {"capture", "store_document"}
            and each.receiver == values.Instance(resolution.CONTEXT)
            for each in options(callee)
        ):
            self._record(node)
            return UNKNOWN
        is_indifferent = hazards.is_indifferent(callee)
        positional: list[Value] = []
        for argument in node.args:
            if isinstance(argument, ast.Starred):
                given = self.evaluate(argument.value)
                if not is_indifferent:
                    check_iteration(given, argument, self)
            elif is_indifferent:
                positional.append(hazards.orderless(argument, self))
            else:
                positional.append(self.evaluate(argument))
        named = [(keyword.arg, self.evaluate(keyword.value)) for keyword in node.keywords]
        known = tuple((name, value) for name, value in named if name is not None)
        is_open = len(positional) < len(node.args) or len(known) < len(named)
        return self.call(callee, Arguments(tuple(positional), known, is_open), node)

    def _record(self, node: ast.Call) -> None:
        """Follow only the calls that make the function that is given: what itself does is recorded, so allowed."""
        for argument in (*node.args, *(keyword.value for keyword in node.keywords)):
            if isinstance(argument, ast.Call):
                is_partial = self.quietly(argument.func) == External("functools.partial")
                for each in argument.args[1:] if is_partial else [argument]:
                    self.evaluate(each)

    def _call_one(self, callee: Value, arguments: Arguments, node: ast.AST) -> Value:
        match callee:
            case values.Function():
                return self._call_function(callee, arguments)
            case values.Class():
                return self._instantiate(callee, arguments, node)
            case values.Object():
                method = resolution.of_object(callee, "__call__", node)
                return UNKNOWN if isinstance(method, values.Method) else self.call(method, arguments, node)
            case External():
                return library.call(callee, arguments, node, self)
            case values.Method():
                return library.call_method(callee, arguments, node, self)
            case values.Partial():
                return self.call(callee.function, arguments.after(*callee.positional), node)
            case values.Accessor():
                found = arguments.first()
                for name in callee.name.split("."):
                    found = resolution.attribute(found, name, node, self)
                return self.call(found, Arguments(), node) if callee.calls else found
        call_back(arguments, UNKNOWN, node, self)
        return UNKNOWN

    def _call_function(self, function: values.Function, arguments: Arguments) -> Value:
        """Return the possible results of a function; each call with the same arguments is followed once."""
        definition, checker = function.definition, self.checker
        if function.bound is not None:
            arguments = arguments.after(function.bound)
        returns = None if isinstance(definition.node, ast.Lambda) else definition.node.returns
        key = ("call", definition, arguments, checker.mode)
        contexts = ("contexts", definition.node, checker.mode)
        seen = checker.counts.get(contexts, 0)
        if checker.is_too_deep(definition.node) or (key not in checker.known and seen >= _MOST_CONTEXTS):
            return annotated(returns, definition.scope)
        if key not in checker.known:
            checker.counts[contexts] = seen + 1
            inside = definition.scope.inside(function=definition)
            with checker.within(definition.name, definition.node, inside.module):
                try:
                    _bind(definition.node.args, arguments, inside)
                    if isinstance(definition.node, ast.Lambda):
                        inside.returned.append(inside.evaluate(definition.node.body))
                    else:
                        inside.execute(definition.node.body)
                except RecursionError:
                    inside.report("CM901", definition.node, f"{definition.name} is nested too deeply")
            result = join(*inside.returned)
            if definition.is_generator:
                result = collection("iterator", join(*inside.yielded))
            elif result == UNKNOWN:
                result = annotated(returns, definition.scope)
            checker.known[key] = result
        return checker.known[key]

    def _instantiate(self, class_: values.Class, arguments: Arguments, node: ast.AST) -> Value:
        """Return an instance, and follow what constructs it."""
        definition = class_.definition
        made = values.Object(definition)
        given_to = {"__new__": arguments, "__init__": arguments, "__post_init__": Arguments()}
        for name, given in {**given_to, "model_post_init": Arguments(is_open=True)}.items():
            for base, binding in definition.members(name):
                if isinstance(binding, FunctionNode):
                    receiver = class_ if name == "__new__" else made
                    self.call(values.Function(base.function(binding), receiver), given, node)
        for external in definition.mro if not definition.members("__init__") else ():
            if isinstance(external, str) and (rules.called(external) or external == "random.Random"):
                self.call(External(external), arguments, node)
        if definition.is_record:
            _check_fields(definition, frozenset() if arguments.is_open else frozenset(dict(arguments.named)))
        return made


def _bind(parameters: ast.arguments, arguments: Arguments, scope: values.Scope) -> None:
    """Bind the parameters of a function to the arguments, their defaults, or what their annotations say."""
    outside = scope.parent or scope
    positional = [*parameters.posonlyargs, *parameters.args]
    defaults: dict[str, ast.expr | None] = {}
    if not arguments.is_open:
        last = zip(reversed(positional), reversed(parameters.defaults), strict=False)
        defaults = {parameter.arg: default for parameter, default in last}
        defaults |= {
            each.arg: default
            for each, default in zip(parameters.kwonlyargs, parameters.kw_defaults, strict=True)
        }
    given, named = list(arguments.positional), dict(arguments.named)
    for parameter in (*positional, *parameters.kwonlyargs):
        is_positional = given and parameter not in parameters.kwonlyargs
        value = given.pop(0) if is_positional else named.pop(parameter.arg, None)
        default = defaults.get(parameter.arg) if value is None else None
        if default is not None:
            value = outside.evaluate(default)
            # A default that can be changed is the same object for all calls.
            value = values.owned(value, values.Owner.DEFAULT) if isinstance(default, _MADE_ONCE) else value
        elif value is None or all(type(option) is Value for option in options(value)):
            value = values.owned(annotated(parameter.annotation, outside), value.owner if value else None)
        scope.names[parameter.arg] = value
    if parameters.vararg:
        scope.names[parameters.vararg.arg] = collection("tuple", join(*given))
    if parameters.kwarg:
        scope.names[parameters.kwarg.arg] = collection("dict", item=join(*named.values()))


# Models: their validators, default factories and upcasters are followed.

_VALIDATORS = listed(
    "field_validator model_validator validator root_validator field_serializer model_serializer", "pydantic."
)


def check_model(definition: values.ClassDefinition) -> None:
    """Follow all that decoding a message or state may call, in nested models too."""
    _check_fields(definition, frozenset())
    known = definition.scope.checker.known
    for base in definition.users_mro:
        bindings = chain.from_iterable(base.bindings.names.values())
        for node in chain.from_iterable(map(_in_annotation, bindings)):
            named = base.body_scope.quietly(node) if isinstance(node, ast.Name | ast.Attribute) else UNKNOWN
            for option in options(named):
                key = ("nested", option)
                if (
                    isinstance(option, values.Class)
                    and option.definition is not definition
                    and key not in known
                ):
                    known[key] = UNKNOWN
                    check_model(option.definition)


def _check_fields(definition: values.ClassDefinition, given: frozenset[str]) -> None:
    """Follow the validators of a model, and the default factories of fields that are not given."""
    checker = definition.scope.checker
    key = ("fields", definition, given, checker.mode)
    if key in checker.known:
        return
    checker.known[key] = UNKNOWN
    for base in definition.users_mro:
        with checker.within(base.name, base.node, base.scope.module):
            bindings = [(name, each) for name, found in base.bindings.names.items() for each in found]
            for _, binding in bindings:
                _check_validator(definition, base, binding)
            for name, binding in bindings:
                if name not in given:
                    _check_default(base, binding)


def _in_annotation(binding: Binding) -> Iterator[ast.AST]:
    if isinstance(binding, Assigned) and binding.annotation is not None:
        yield from ast.walk(binding.annotation)


def _check_validator(
    definition: values.ClassDefinition, base: values.ClassDefinition, binding: Binding
) -> None:
    """Follow a method that validates, and the functions that `Annotated[...]` names."""
    scope = base.body_scope
    if isinstance(binding, FunctionNode) and _VALIDATORS.intersection(base.marks_of(binding)):
        method = resolution.bound_method(values.Object(definition), base, binding)
        scope.call(method, Arguments(is_open=True), binding)
    for node in _in_annotation(binding):
        if isinstance(node, ast.Call):
            callee = scope.quietly(node.func)
            if isinstance(callee, External) and callee.name.endswith(("Validator", "Serializer")):
                for argument in (*node.args, *(keyword.value for keyword in node.keywords)):
                    scope.call(scope.evaluate(argument), Arguments(is_open=True), argument)


def _check_default(base: values.ClassDefinition, binding: Binding) -> None:
    """Follow the factories of a field's default, or the default itself."""
    for node in _in_annotation(binding):
        _check_factory(node, base.body_scope)
    value = binding.value if isinstance(binding, Assigned) and binding.annotation is not None else None
    if value is not None and not _check_factory(value, base.body_scope):
        base.body_scope.evaluate(value)


def _check_factory(node: ast.AST, scope: values.Scope) -> bool:
    """Follow the factory of a default, and return whether there is one."""
    keywords = node.keywords if isinstance(node, ast.Call) else []
    factories = [each.value for each in keywords if each.arg in {"default_factory", "factory"}]
    for factory in factories:
        scope.call(scope.evaluate(factory), Arguments(is_open=True), factory)
    return bool(factories)
