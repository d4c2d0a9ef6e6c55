"""Follows statements, expressions and calls in the order of execution."""

import ast
from collections.abc import Callable, Sequence
from functools import partial

from handlers.lint import library, source, values
from handlers.lint.library import call_back, call_special, check_iteration, iterate, orderless
from handlers.lint.rules import called, listed
from handlers.lint.source import FunctionNode
from handlers.lint.values import (
    Arguments,
    Class,
    External,
    Function,
    Instance,
    Scope,
    Value,
    collection,
    join,
)

_PASSES = 2
_MOST_CONTEXTS = 12
_COLLECTIONS = listed("builtins.{list tuple set frozenset dict iterator unordered}")
_MADE_ONCE = ast.List | ast.Dict | ast.Set | ast.ListComp | ast.DictComp | ast.SetComp | ast.Call
_RECORDED = {values.Attribute(Instance(values.CONTEXT), name) for name in ("capture", "store_document")}


class Interpreter(Scope):
    """An abstract interpreter: it follows statements and calls, and evaluates expressions to their possible values."""

    def evaluate(self, node: ast.expr) -> Value:  # noqa: C901, PLR0911, PLR0912 - one table of cases
        match node:
            case ast.Constant(value=constant):
                return values.literal(constant)
            case ast.Name(id=name):
                named = self.lookup(name)
                self.check_read(named or (), node)
                is_ours = self.local(name) is not None or self.is_global(name)
                if named is not None and name in self.module.changed and not is_ours:
                    self.report("CM808", node, name)
                return named or ()
            case ast.Attribute(value=base, attr=name):
                return self.attribute(self.evaluate(base), name, node)
            case ast.Subscript():
                return self._subscript(node)
            case ast.Call():
                return self._call(node)
            case ast.Lambda():
                return (Function(node, self),)
            case ast.NamedExpr(target=target, value=assigned):
                value = self.evaluate(assigned)
                self.bind(target, value)
                return value
            case ast.List(elts=members) | ast.Tuple(elts=members) | ast.Set(elts=members):
                return self._display(type(node).__name__.lower(), members)
            case ast.Starred(value=starred):
                value = self.evaluate(starred)
                check_iteration(value, node, self)
                return values.element_of(value)
            case ast.Dict(keys=keys, values=items):
                key = join(*(self.evaluate(each) for each in keys if each))
                pairs = zip(keys, map(self.evaluate, items), strict=True)
                item = join(*(given if each else values.item_of(given) for each, given in pairs))
                return collection("dict", key, item)
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                return self._comprehension(node)
            case ast.BinOp(left=left, op=operator, right=right):
                return library.operate(self.evaluate(left), operator, self.evaluate(right), node, self)
            case ast.Compare(left=left, ops=operators, comparators=comparators):
                compared = [*map(self.evaluate, (left, *comparators))]
                for first, comparison, second in zip(compared, operators, compared[1:], strict=False):
                    library.operate(first, comparison, second, node, self)
                return values.instance("builtins.bool")
            case ast.BoolOp(values=operands):
                return join(*map(self.evaluate, operands))
            case ast.IfExp(test=test, body=body, orelse=orelse):
                self.evaluate(test)
                return join(self.evaluate(body), self.evaluate(orelse))
            case ast.JoinedStr(values=parts):
                for part in parts:
                    self._formatted(part)
                return values.TEXT
            case ast.Await(value=awaited):
                self.report("CM502", node, "await")
                return self.evaluate(awaited)
            case ast.Yield(value=yielded):
                self.yielded.append(self.evaluate(yielded) if yielded else ())
            case ast.YieldFrom(value=iterated):
                value = self.evaluate(iterated)
                check_iteration(value, iterated, self)
                self.yielded.append(values.element_of(value))
            case _:
                self._parts(node)
        return ()

    def execute(self, body: Sequence[ast.stmt]) -> None:
        for statement, following in zip(body, (*body[1:], None), strict=False):
            match statement, following:
                case (
                    ast.Assign([ast.Name(name) as target], value),
                    ast.Expr(ast.Call(ast.Attribute(ast.Name(sorted_name), "sort"), keywords=[])),
                ) if name == sorted_name:
                    # The next statement sorts it, so its order does not matter.
                    self.bind(target, collection("list", values.element_of(orderless(value, self))))
                case _:
                    self._execute(statement)

    def _execute(self, statement: ast.stmt) -> None:  # noqa: C901, PLR0912 - one table of cases
        match statement:
            case ast.Import() | ast.ImportFrom():
                for name, binding in source.imported_names(statement):
                    self.names[name] = self.imported(binding)
            case ast.Global(names=names):
                self.globals.update(names)
            case ast.Assign(targets=targets, value=assigned):
                value = self.evaluate(assigned)
                for target in targets:
                    self.bind(target, value)
            case ast.AnnAssign(target=target, value=ast.expr() as assigned, annotation=annotation):
                value = self.evaluate(assigned)
                # An annotation tells the members of a collection that is still empty.
                types = [values.type_name(each) for each in value]
                is_open = _COLLECTIONS.issuperset(types) and values.element_of(value) == ()
                self.bind(target, (self.annotated(annotation) if is_open else ()) or value)
            case ast.AugAssign():
                self._augmented(statement)
            case ast.Delete(targets=targets):
                for target in targets:
                    library.check_target(target, self)
            case ast.Return(value=ast.expr() as returned):
                self.returned.append(self.evaluate(returned))
            case ast.If(test=test, body=body, orelse=orelse):
                call_special(self.evaluate(test), ("__bool__", "__len__"), test)
                self._either(partial(self.execute, body), partial(self.execute, orelse))
            case ast.For() | ast.AsyncFor():
                self._for(statement)
            case ast.While(test=test, body=body, orelse=orelse):
                self._repeat(partial(self.execute, [ast.Expr(test), *body]))
                self.execute(orelse)
            case ast.With() | ast.AsyncWith():
                self._with(statement)
            case ast.Try() | ast.TryStar():
                for part in (statement, *statement.handlers):
                    caught = getattr(part, "name", None)
                    self.names |= {caught: ()} if caught else {}
                    self._either(partial(self.execute, part.body))
                self.execute([*statement.orelse, *statement.finalbody])
            case ast.Match():
                self._match(statement)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                self.names[name] = (Function(statement, self),)
                self.names[name] = self.decorated(Function(statement, self))
            case ast.ClassDef(name=name):
                self.names[name] = (self.class_of(statement),)
            case _:
                self._parts(statement)

    def bind(self, target: ast.expr, value: Value) -> None:
        """Bind the names of a target to a value or its parts. Report an assignment that mutates a shared value."""
        match target:
            case ast.Name(id=name):
                library.check_target(target, self)
                self.names[name] = value
            case ast.Starred(value=inner):
                self.bind(inner, collection("list", values.element_of(value)))
            case ast.Tuple(elts=members) | ast.List(elts=members):
                # The only member is the first in any order.
                if len(members) != 1 or isinstance(members[0], ast.Starred):
                    check_iteration(value, target, self)
                rows = [each.parts if isinstance(each, Instance) else () for each in value]
                member = values.element_of(value)
                parts = [value if isinstance(each, ast.Starred) else member for each in members]
                if value and all(len(row) == len(members) for row in rows):
                    parts = [join(*column) for column in zip(*rows, strict=True)]
                for each, part in zip(members, parts, strict=True):
                    self.bind(each, part)
            case _:
                if isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Slice):
                    check_iteration(value, target, self)
                library.check_target(target, self)

    def _parts(self, node: ast.AST) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self.evaluate(child)

    def _subscript(self, node: ast.Subscript) -> Value:
        base, key = self.evaluate(node.value), self.evaluate(node.slice)
        if isinstance(node.slice, ast.Slice):
            return values.fresh(base)
        results = [call_special(base, ("__getitem__", "__class_getitem__"), node, key)]
        for option in base:
            match option, key:
                case External(name="sys.modules"), (Instance(literal=str(name)),):
                    results.append((External(name),))
                case External() | values.Package(), (Instance(literal=str(name)),):
                    results.append(self.attribute((option,), name, node))
                case External(name=name), _ if name in values.KINDS or name.rpartition(".")[2][:1].isupper():
                    arguments = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
                    results.append((External(name, tuple(map(self.quietly, arguments))),))
                case Class(), _:
                    results.append((option,))
                case Instance(parts=parts), (Instance(literal=int(at)),) if -len(parts) <= at < len(parts):
                    results.append(parts[at])
                case _:
                    results.append(values.item_of((option,)))
        return join(*results)

    def _display(self, kind: str, members: list[ast.expr]) -> Value:
        parts: list[Value] = []
        for each in members:
            if isinstance(each, ast.Starred) and kind == "set":  # its order does not matter
                parts.append(values.element_of(self.evaluate(each.value)))
            else:
                parts.append(self.evaluate(each))
        is_row = kind == "tuple" and not any(isinstance(each, ast.Starred) for each in members)
        return collection(kind, join(*parts), parts=parts if is_row else ())

    def _comprehension(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> Value:
        inside = self.inside(function=self.function)
        is_any = False
        for generator in node.generators:
            iterated = inside.evaluate(generator.iter)
            is_any = is_any or values.is_unordered(iterated)
            if isinstance(node, ast.ListComp | ast.DictComp):
                check_iteration(iterated, generator.iter, self)
            if generator.is_async:
                self.report("CM502", generator.target, "async for")
            inside.bind(generator.target, iterate(iterated, generator.iter))
            for test in generator.ifs:
                inside.evaluate(test)
        if isinstance(node, ast.DictComp):
            return collection("dict", inside.evaluate(node.key), inside.evaluate(node.value))
        element = inside.evaluate(node.elt)
        if isinstance(node, ast.GeneratorExp):
            return collection("unordered" if is_any else "iterator", element)
        return collection("list" if isinstance(node, ast.ListComp) else "set", element)

    def _formatted(self, part: ast.expr) -> None:
        if isinstance(part, ast.FormattedValue):
            value = self.evaluate(part.value)
            call_special(value, library.TEXT_METHODS, part.value)
            library.check_text(value, part.value, self)
            texts = part.format_spec.values if isinstance(part.format_spec, ast.JoinedStr) else []
            if texts and isinstance(texts[-1], ast.Constant) and str(texts[-1].value).endswith("n"):
                self.report("CM304", part.value, f"the format {texts[-1].value!r}")
            for text in texts:
                self._parts(text)

    def _augmented(self, statement: ast.AugAssign) -> None:
        added, target = self.evaluate(statement.value), statement.target
        if not isinstance(target, ast.Name):
            library.check_target(target, self)
            return
        held = self.quietly(target)
        mutable = tuple(each for each in held if values.has_type((each,), "list", "dict", "set"))
        library.check_changed(mutable, target, self)
        if isinstance(statement.op, ast.Add) and values.has_type(held, "list"):
            check_iteration(added, statement.value, self)
        with self.checker.following(quietly=True):
            result = library.operate(held, statement.op, added, statement, self)
        self.bind(target, join(held, result))

    def _for(self, statement: ast.For | ast.AsyncFor) -> None:
        iterated = self.evaluate(statement.iter)
        if not library.is_indifferent_loop(statement):
            check_iteration(iterated, statement.iter, self)
        if isinstance(statement, ast.AsyncFor):
            self.report("CM502", statement, "async for")

        def once() -> None:
            self.bind(statement.target, iterate(iterated, statement.iter))
            self.execute(statement.body)

        self._repeat(once)
        self.execute(statement.orelse)

    def _with(self, statement: ast.With | ast.AsyncWith) -> None:
        if isinstance(statement, ast.AsyncWith):
            self.report("CM502", statement, "async with")
        for item in statement.items:
            value = self.evaluate(item.context_expr)
            entered = call_special(value, ("__enter__", "__aenter__"), item.context_expr)
            call_special(value, ("__exit__", "__aexit__"), statement, (), (), ())
            if item.optional_vars is not None:
                self.bind(item.optional_vars, entered or value)
        self.execute(statement.body)

    def _match(self, statement: ast.Match) -> None:
        subject = self.evaluate(statement.subject)
        part = join(*(values.owned((), values.owner_of(each)) for each in subject))
        for case in statement.cases:
            for pattern in ast.walk(case.pattern):
                name = getattr(pattern, "rest", None) or getattr(pattern, "name", None)
                if isinstance(name, str):
                    is_whole = pattern is case.pattern or isinstance(case.pattern, ast.MatchOr)
                    self.names[name] = subject if is_whole else part
            if case.guard is not None:
                self.evaluate(case.guard)
            self._either(partial(self.execute, case.body))

    def _either(self, one: Callable[[], None], other: Callable[[], None] = lambda: None) -> None:
        """Follow two branches, which begin with the same values of names. Afterwards, a name has the values of both."""
        before = dict(self.names)
        one()
        after_one, self.names = self.names, before
        other()
        for name, value in after_one.items():
            self.names[name] = join(value, self.names.get(name, ()))

    def _repeat(self, once: Callable[[], None]) -> None:
        """Follow the body of a loop. Follow it a second time if it changed names that the next iteration may read."""
        for _ in range(_PASSES):
            before = dict(self.names)
            self._either(once)
            if self.names == before:
                break

    # Calls: those of the user's functions and classes are followed; those of libraries are looked up.

    def _call(self, node: ast.Call) -> Value:
        callee = self.evaluate(node.func)
        if not _RECORDED.isdisjoint(callee):
            # The function's own result is recorded, so it may do anything; the calls that create it may not.
            for argument in (*node.args, *(keyword.value for keyword in node.keywords)):
                if isinstance(argument, ast.Call):
                    is_partial = self.quietly(argument.func) == (External("functools.partial"),)
                    for each in argument.args[1:] if is_partial else [argument]:
                        self.evaluate(each)
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

    def call(self, callee: Value, arguments: Arguments, node: ast.AST) -> Value:
        results: list[Value] = []
        for option in callee or (Instance(),):
            match option:
                case Function():
                    results.append(self._call_function(option, arguments))
                case Class():
                    results.append(self._instantiate(option, arguments, node))
                case External() | values.Attribute():
                    results.append(library.call(option, arguments, node, self))
                case Instance(of=Class() as class_) if class_.members("__call__"):
                    results.append(call_special((option,), ("__call__",), node, *arguments.positional))
                case _:
                    call_back(arguments, (), node, self)
        return join(*results)

    def _call_function(self, function: Function, arguments: Arguments) -> Value:
        """Return the possible results of a function. Each combination of arguments is followed only once."""
        checker, node, scope = self.checker, function.node, function.scope
        key = ("call", function, arguments, checker.mode)
        contexts = ("contexts", node, checker.mode)
        is_new = key not in checker.known and not checker.is_too_deep(node)
        if is_new and checker.counts[contexts] < _MOST_CONTEXTS:
            checker.counts[contexts] += 1
            inside = scope.inside(function=function)
            with checker.following((function.name, node, inside.module)):
                try:
                    _bind(node.args, arguments.after(*function.bound), inside)
                    if isinstance(node, ast.Lambda):
                        inside.returned.append(inside.evaluate(node.body))
                    else:
                        inside.execute(node.body)
                except RecursionError:
                    inside.report("CM901", node, f"{function.name} is nested too deeply")
            yielded = collection("iterator", join(*inside.yielded))
            checker.known[key] = yielded if inside.yielded else join(*inside.returned)
        return checker.known.get(key) or scope.annotated(getattr(node, "returns", None))

    def _instantiate(self, class_: Class, arguments: Arguments, node: ast.AST) -> Value:
        made = values.instance(class_)
        given_to = {"__new__": arguments, "__init__": arguments, "__post_init__": Arguments()}
        for name, given in {**given_to, "model_post_init": values.OPEN}.items():
            for base, binding in class_.members(name):
                if isinstance(binding, FunctionNode):
                    method = base.function(binding, (class_,) if name == "__new__" else made)
                    self.call((method,), given, node)
        for external in class_.mro if not class_.members("__init__") else ():
            if isinstance(external, str) and (called(external) or external == "random.Random"):
                self.call((External(external),), arguments, node)
        if class_.is_record:
            given_fields = frozenset(() if arguments.is_open else dict(arguments.named))
            library.check_model(class_, given_fields, nested=False)
        return made


def _bind(parameters: ast.arguments, arguments: Arguments, scope: Scope) -> None:
    outside = scope.parent or scope
    positional = [*parameters.posonlyargs, *parameters.args]
    pairs = [*zip(reversed(positional), reversed(parameters.defaults), strict=False)]
    keywords = [*zip(parameters.kwonlyargs, parameters.kw_defaults, strict=True)]
    defaults = {} if arguments.is_open else {each.arg: default for each, default in (*pairs, *keywords)}
    given, named = list(arguments.positional), dict(arguments.named)
    for parameter in (*positional, *parameters.kwonlyargs):
        is_positional = given and parameter not in parameters.kwonlyargs
        value = given.pop(0) if is_positional else named.pop(parameter.arg, None)
        default = defaults.get(parameter.arg) if value is None else None
        if default is not None:
            # A mutable default is shared by all calls.
            owner = values.Owner.DEFAULT if isinstance(default, _MADE_ONCE) else None
            value = values.owned(outside.evaluate(default), owner)
        elif not value or all(isinstance(each, Instance) and each.of == "" for each in value):
            owner = values.owner_of(value[0]) if value else None
            value = values.owned(outside.annotated(parameter.annotation), owner)
        scope.names[parameter.arg] = value or ()
    if parameters.vararg:
        scope.names[parameters.vararg.arg] = collection("tuple", join(*given))
    if parameters.kwarg:
        scope.names[parameters.kwarg.arg] = collection("dict", item=join(*named.values()))
