"""Models library functions, methods and operators: the rules that they break, their results, and the order of sets."""

import ast
from dataclasses import replace
from itertools import chain

from handlers.lint import rules, values
from handlers.lint.rules import listed
from handlers.lint.source import Assigned, FunctionNode, parse_expression
from handlers.lint.values import Arguments, Class, External, Instance, Scope, Value, collection, join

# Findings about values: the order of sets is used, or a value that messages share is mutated.


def check_iteration(value: Value, node: ast.AST, scope: Scope) -> None:
    if values.is_unordered(value):
        scope.report("CM701", node)


def check_text(value: Value, node: ast.AST, scope: Scope) -> None:
    """Report the conversion of `value` to text at `node` if the value may be or contain a set."""
    if values.has_type(value, "set", "frozenset") or any(map(_holds_set, value)):
        scope.report("CM703", node)


def _holds_set(option: values.Option) -> bool:
    match option:
        case Instance(of=Class() as class_) if not any(map(class_.members, ("__str__", "__repr__"))):
            bodies = [(each, base.body_scope) for base in class_.users_mro for each in base.node.body]
            fields = [(each.annotation, scope) for each, scope in bodies if isinstance(each, ast.AnnAssign)]
            held = [scope.annotated(annotation) for annotation, scope in fields]
        case Instance(element=element, item=item, parts=parts):
            held = [element, item, *parts]
        case _:
            held = []
    return any(values.has_type(each, "set", "frozenset") for each in held)


def check_changed(value: Value, node: ast.AST, scope: Scope) -> None:
    for option in value:
        owner = values.owner_of(option)
        if owner and not values.has_type((option,), "tuple", "frozenset"):
            scope.report(owner.value, node)


def check_target(target: ast.expr, scope: Scope) -> None:
    match target:
        case ast.Attribute(value=base) | ast.Subscript(value=base):
            check_changed(scope.evaluate(base), target, scope)
            if isinstance(target, ast.Subscript):
                scope.evaluate(target.slice)
        case ast.Name(id=name) if name in scope.globals:
            scope.report("CM801", target, name)


def is_indifferent_loop(loop: ast.For | ast.AsyncFor) -> bool:
    """Return whether a loop certainly has the same result in any order."""
    # True if it only adds to sets, counts, or searches for a member, and its conditions do not read changed names.
    statements = [each for part in loop.body for each in ast.walk(part) if isinstance(each, ast.stmt)]
    changed: set[str] = set()
    own: set[ast.AST] = set()  # names at the places that mutate them
    for statement in statements:
        match statement:
            case ast.Pass() | ast.Continue() | ast.If() | ast.Return(value=ast.Constant()):
                pass
            case ast.Expr(ast.Call(ast.Attribute(ast.Name(name) as place, "add" | "discard"), [_], [])):
                own.add(place)
                changed.add(name)
            case ast.AugAssign(ast.Name(name) as place, ast.Add() | ast.Sub(), ast.Constant(value=int())):
                own.add(place)
                changed.add(name)
            case _:
                return False
    nodes = [node for each in loop.body for node in ast.walk(each)]
    read = {each.id for each in nodes if isinstance(each, ast.Name) and each not in own}
    returned = {ast.dump(each) for each in statements if isinstance(each, ast.Return)}
    is_plain = not loop.orelse and not any(isinstance(each, ast.NamedExpr | ast.Await) for each in nodes)
    return is_plain and len(returned) <= 1 and changed.isdisjoint(read)


# Operators and library functions call the user's special methods and callbacks.

TEXT_METHODS = ("__format__", "__str__", "__repr__")
_ELSE = {
    "str": TEXT_METHODS[1:], "format": TEXT_METHODS, "bool": ("__bool__", "__len__"), "int": ("__int__", "__index__"),
}  # fmt: skip
"""The special methods that a builtin calls, if not the method of the same name."""
_COMPARING = listed("builtins.{sorted min max}")
_ITERATING = _COMPARING | listed(
    "builtins.{list tuple set frozenset sum any all iter enumerate zip dict map filter}"
)
_OPERATORS: dict[type[ast.AST], str] = {
    ast.Mult: "mul", ast.Div: "truediv", ast.MatMult: "matmul", ast.BitAnd: "and", ast.BitOr: "or",
    ast.BitXor: "xor", ast.NotEq: "eq", ast.LtE: "le", ast.GtE: "ge", ast.In: "contains", ast.NotIn: "contains",
}  # fmt: skip
"""The names of operators' special methods, if not the name of the class in lower case."""


def call_special(value: Value, names: tuple[str, ...], node: ast.AST, *given: Value) -> Value:
    """For each user's object in `value`, follow a call of the first method in `names` that the object has.

    The arguments of the call are `given`. Return the possible results, or () if there is no such method.
    """
    results: list[Value] = []
    for option in (each for each in value if isinstance(each, Instance)):
        class_ = values.class_of(option)
        members = [member for name in names for member in class_.members(name)] if class_ else []
        for base, method in members[:1]:
            if isinstance(method, FunctionNode):
                results.append(base.scope.call((base.function(method, (option,)),), Arguments(given), node))
    return join(*results)


def iterate(value: Value, node: ast.AST) -> Value:
    """Return the possible items of an iteration over a value. Follow the user's methods that yield items."""
    given = call_special(value, ("__iter__", "__getitem__"), node)
    return join(values.element_of(value), values.element_of(given), call_special(given, ("__next__",), node))


def call_back(arguments: Arguments, given: Value, node: ast.AST, scope: Scope) -> Value:
    """Follow each function among the arguments as if called with `given`. Return the possible results."""
    called: Value = ()
    for each in chain.from_iterable(arguments):
        is_broken = isinstance(each, External) and (each.bound or rules.called(each.name))
        if is_broken or isinstance(each, values.Function):
            called += (each,)
    return scope.call(called, Arguments((given,), is_open=True), node) if called else ()


def operate(left: Value, operator: ast.AST, right: Value, node: ast.AST, scope: Scope) -> Value:
    """Return the possible results of an operator. Follow the user's methods that the operator calls."""
    name = _OPERATORS.get(type(operator), type(operator).__name__.lower())
    if isinstance(operator, ast.cmpop):
        if name == "contains":
            call_special(right, ("__contains__", "__iter__"), node, left)
        else:
            call_special(left, (f"__{name}__",), node, right)
        return values.instance("builtins.bool")
    results = call_special(left, (f"__{name}__",), node, right)
    special = join(results, call_special(right, (f"__r{name}__",), node, left))
    both = left + right
    if special:
        return special
    if name == "mod" and values.has_type(left, "str"):
        check_text(right, node, scope)
        return values.TEXT
    if name in {"or", "and", "sub", "xor"} and values.has_type(both, "set", "frozenset", "keys", "items"):
        return collection("set", join(values.element_of(left), values.element_of(right)))
    types = [values.type_name(each).removeprefix("builtins.") for each in left]
    is_number = not any("." in each for each in types)  # no path, no Decimal
    if values.has_type(both, "float") or (name == "truediv" and is_number):
        return values.FLOAT
    first, second = values.text_of(left), values.text_of(right)
    if first is not None and second is not None:
        return values.literal(first + second)
    known = tuple(each for each in both if not values.is_literal(each)) or both[:1]
    return values.fresh(known)


# Rules that a call breaks, depending on the name of the function or method, the receiver and the arguments.

_LAZY = listed("builtins.{map filter iter} itertools.{chain chain.from_iterable filterfalse starmap}")
_SUMS = listed("builtins.sum math.prod")
_INDIFFERENT = _SUMS | listed(
    "builtins.{len sorted min max any all set frozenset bool isinstance type print} math.fsum copy.{copy deepcopy} "
    "statistics.{median fmean mean}"
)
_ORDERED = (*listed(
    "builtins.{list tuple enumerate zip dict reversed bytes bytearray} itertools collections functools.reduce heapq "
    "numpy array more_itertools pandas json.dumps"
),)  # fmt: skip
_TIES = listed("builtins.{min max sorted} heapq.{nlargest nsmallest}")
_TEXTS = listed("builtins.{str repr ascii format} pickle.dumps marshal.dumps msgpack.{packb dumps}")
_ORDERED_METHODS = listed("join extend extendleft writelines fromkeys writerows")
_TEXT_METHODS = listed("__str__ __repr__ __format__ model_dump_json json")
_LOGGERS = listed("debug info warning error exception critical log")
_MUTATORS = listed(
    "append appendleft extend extendleft insert add update pop popleft popitem remove clear discard setdefault sort "
    "reverse rotate subtract difference_update intersection_update symmetric_difference_update __setattr__ "
    "__delattr__ __setitem__ __delitem__ __ior__ __iadd__"
)
_CHANGES_FIRST = listed(
    "heapq.{heappush heappop heapify heapreplace heappushpop} bisect.{insort insort_left insort_right} "
    "operator.{setitem delitem iadd ior} random.Random.shuffle builtins.{setattr delattr}"
)
_BUILT_IN = listed("builtins.{list dict set object}")
_FILE_METHODS = listed(".{read_text write_text read_bytes write_bytes iterdir rglob}")
_STEADY_HASHES = listed("builtins.{int float bool complex} decimal.Decimal fractions.Fraction uuid.UUID")
_WRAPPERS = listed("builtins.{staticmethod classmethod} functools.{partialmethod lru_cache cache}")
_NEVER_CALLED = listed(
    "builtins.{isinstance issubclass property callable hasattr} functools.{wraps update_wrapper} handlers.{App handles}"
)
_PURE_WITH = {  # position and name of the argument without which a rule is broken
    "time.gmtime": (0, "secs", "CM101"), "time.strftime": (1, "t", "CM101"), "time.asctime": (0, "t", "CM101"),
    "gzip.compress": (2, "mtime", "CM101"), "random.Random": (0, "x", "CM201"),
    "numpy.random.default_rng": (0, "seed", "CM204"), "numpy.random.RandomState": (0, "seed", "CM204"),
    "numpy.random.Generator": (0, "bit_generator", "CM204"), "numpy.random.PCG64": (0, "seed", "CM204"),
    "datetime.datetime.fromtimestamp": (1, "tz", "CM103"), "datetime.datetime.astimezone": (0, "tz", "CM103"),
    ".astimezone": (0, "tz", "CM103"), "time.localtime": (0, "secs", "CM101"), "time.ctime": (0, "secs", "CM101"),
}  # fmt: skip
_SHARED = (values.Owner.MODULE, values.Owner.CLASS, values.Owner.DEFAULT)


def is_indifferent(callee: Value) -> bool:
    """Return whether the result of a function does not depend on the order of its arguments' members."""
    return any(
        (isinstance(each, External) and (each.name in _INDIFFERENT or each.name.startswith("logging.")))
        or (isinstance(each, values.Attribute) and each.name in _LOGGERS)
        for each in callee
    )


def orderless(node: ast.expr, scope: Scope) -> Value:
    """Evaluate an expression whose order does not matter: converting a set to a list or tuple is not reported."""
    match node:
        case ast.ListComp(elt, generators):
            return scope.evaluate(ast.copy_location(ast.GeneratorExp(elt, generators), node))
        case ast.Call(func, [argument], []):
            if scope.quietly(func) in {(External("builtins.list"),), (External("builtins.tuple"),)}:
                given = orderless(argument, scope)
                kind = "unordered" if values.is_unordered(given) else "iterator"
                return collection(kind, values.element_of(given))
    return scope.evaluate(node)


def _broken_by(name: str, arguments: Arguments) -> str | None:
    if name in _PURE_WITH:
        position, keyword, code = _PURE_WITH[name]
        if arguments.get(position, keyword) in {None, (values.NONE,)}:
            return code
    if name == "builtins.hash":
        types = [*map(values.type_name, arguments.first)] or [""]
        return None if _STEADY_HASHES.issuperset(types) else "CM602"
    if name.endswith(".__hash__") and name.removesuffix(".__hash__") not in _STEADY_HASHES:
        return "CM602"
    return "CM401" if name in _FILE_METHODS else rules.called(name)


def _broken_order(name: str, receiver: Value, arguments: Arguments) -> str | None:
    """Return the code of the rule about the order of sets that a call breaks, or None.

    `receiver` is the object of a method call, or () for a function.
    """
    method, is_own = name.rpartition(".")[2], values.is_unordered(receiver)
    is_given = any(map(values.is_unordered, arguments))
    if is_given and name in _SUMS:
        summed = values.element_of(arguments.first) + (arguments.get(1, "start") or ())
        return "CM704" if values.has_type(summed, "float") else None
    if is_given and name in _TIES:
        return "CM705" if _has_ties(dict(arguments.named).get("key")) else None
    is_any = (method == "pop" and values.has_type(receiver, "set")) or (is_own and method == "__next__")
    if is_any or (is_given and name == "builtins.next"):
        return "CM702"
    is_ordered = is_own and method in {"__iter__", "__reduce__"}
    if is_given and receiver:
        is_ordered |= method in _ORDERED_METHODS or (method == "update" and values.has_type(receiver, "dict"))
    elif is_given:
        is_ordered |= name.startswith(_ORDERED) and name not in _LAZY
    return "CM701" if is_ordered else None


def _has_ties(key: Value | None) -> bool:
    """Return whether two members of a set may have equal keys, judged by the form of the key function, if any."""
    match key:
        case None | (Instance(of="builtins.NoneType"),):
            return False
        case (External(name=name),):
            return name not in _TEXTS
        case (values.Function(node=ast.Lambda(args=ast.arguments(args=[member, *_]), body=body)),):
            match body:
                case ast.Tuple():
                    return False
                case ast.Name(id=name) | ast.Call(func=ast.Name(id="str" | "repr"), args=[ast.Name(id=name)]):
                    return name != member.arg
    return True


def _made_text(name: str, receiver: Value, arguments: Arguments) -> list[Value]:
    method = name.rpartition(".")[2]
    if receiver and method == "format":
        return list(arguments)
    is_json = method == "model_dump" and values.literal("json") in arguments
    if receiver and (is_json or method in _TEXT_METHODS):
        return [receiver]
    return [arguments.first] if name in _TEXTS else []


def _changed(name: str, receiver: Value, arguments: Arguments) -> Value:
    owner, _, method = name.rpartition(".")
    if name in _CHANGES_FIRST or (not receiver and owner in _BUILT_IN and method in _MUTATORS):
        return arguments.first
    shared = tuple(each for each in arguments.first if values.owner_of(each) in _SHARED)
    return receiver if method in _MUTATORS else shared if name == "builtins.next" else ()


def call(callee: External | values.Attribute, arguments: Arguments, node: ast.AST, scope: Scope) -> Value:
    """Return the possible results of a call to a library function or method. Report rules that the call breaks."""
    receiver: Value = () if isinstance(callee, External) else (callee.receiver,)
    if isinstance(callee, External):
        name, arguments = callee.name, arguments.after(*callee.bound)
    else:
        name = f"{values.type_name(callee.receiver)}.{callee.name}"
    owner, _, method = name.rpartition(".")
    if code := _broken_by(name, arguments):
        scope.report(code, node, name.lstrip("."))
    if code := _broken_order(name, receiver, arguments):
        scope.report(code, node)
    if owner == "random.Random" and any(values.owner_of(each) in _SHARED for each in receiver):
        scope.report("CM205", node, name)
    for text in _made_text(name, receiver, arguments):
        check_text(text, node, scope)
    check_changed(_changed(name, receiver, arguments), node, scope)
    if owner in {"builtins", "copy"}:
        call_special(arguments.first, _ELSE.get(method, (f"__{method}__",)), node)
    for argument in arguments.positional if name in _ITERATING else ():
        element = iterate(argument, node)
        call_special(element, ("__lt__",) if name in _COMPARING else (), node, element)
    if name in _INTERPRETED:
        return _interpreted(name, arguments, node, scope)
    data = [each for each in arguments if not any(isinstance(option, values.Function) for option in each)]
    given = values.element_of(receiver or join(*data))
    called_back = () if name in _NEVER_CALLED else call_back(arguments, given, node, scope)
    return _result(name, receiver, arguments, called_back)


# Results that rules depend on.

_INTERPRETED = _WRAPPERS | listed(
    "builtins.{getattr __import__ eval vars globals type super} importlib.import_module functools.partial typing.cast "
    "operator.{attrgetter attrgetter.call methodcaller methodcaller.call} random.Random"
)


def _interpreted(name: str, arguments: Arguments, node: ast.AST, scope: Scope) -> Value:  # noqa: C901, PLR0911, PLR0912 - one table of cases
    first, text = arguments.first, values.text_of(arguments.first)
    match name.removeprefix("builtins."):
        case "getattr":
            text = values.text_of(arguments.get(1, ""))
            if text is not None:
                return join(scope.attribute(first, text, node), *arguments.positional[2:])
            if any(isinstance(each, External | values.Package) for each in first):
                scope.report("CM901", node, "getattr() with a name that is computed")
            return join(*(values.owned((), values.owner_of(each)) for each in first))
        case "__import__" | "importlib.import_module" if text:
            module = scope.checker.modules.find(text)
            return (values.Package(module),) if module else (External(rules.canonical(text)),)
        case "eval" if text:
            parsed = parse_expression(text)
            for each in ast.walk(parsed) if parsed else ():
                if hasattr(each, "lineno"):
                    ast.copy_location(each, node)
            return scope.evaluate(parsed) if parsed else ()
        case "eval" | "__import__" | "importlib.import_module":
            what = "eval() of a text" if name == "builtins.eval" else "an import of a name"
            scope.report("CM901", node, f"{what} that is computed")
        case "vars":
            return scope.attribute(first, "__dict__", node)
        case "globals":
            return (values.Package(scope.module),)
        case "type":
            of = [each.of for each in first if isinstance(each, Instance) and each.of]
            return tuple(External(each) if isinstance(each, str) else each for each in of)
        case "super" if scope.function and (owner := scope.function.of):
            while scope.parent and scope.parent.function is scope.function:
                scope = scope.parent
            me = map(values.class_of, next(iter(scope.names.values()), ()))
            return tuple(Instance(each, after=owner) for each in me if each)
        case "functools.partial":
            more, kinds = arguments.positional[1:], (External, values.Function)
            return tuple(replace(it, bound=it.bound + more) if isinstance(it, kinds) else it for it in first)
        case "typing.cast":
            return arguments.get(1, "val") or ()
        case "operator.attrgetter" | "operator.methodcaller":
            return (External(f"{name}.call", (first,)),)
        case "operator.attrgetter.call" | "operator.methodcaller.call" if text:
            reached: Value = scope.attribute(arguments.get(1, "") or (), text, node)
            return reached if name == "operator.attrgetter.call" else scope.call(reached, Arguments(), node)
        case "random.Random":
            return values.instance(name)
        case _ if name in _WRAPPERS:
            return first
    return ()


_MADE = {
    **{f"builtins.{kind}": kind for kind in ("set", "frozenset", "list", "tuple")},
    **dict.fromkeys(listed("builtins.sorted collections.deque"), "list"),
    **dict.fromkeys(listed("builtins.reversed itertools.{islice takewhile}"), "iterator"),
}
_RESULTS = {
    **dict.fromkeys(listed("builtins.{str repr format ascii chr}"), values.TEXT),
    **dict.fromkeys(listed("builtins.float math.fsum statistics.fmean"), values.FLOAT),
    **dict.fromkeys(listed("builtins.{int len ord round hash}"), values.NUMBER),
    **dict.fromkeys(listed("builtins.str.{split rsplit splitlines}"), collection("list", values.TEXT)),
    "handlers.Context.new_guid": values.instance("uuid.UUID"),
    "builtins.bool": values.instance("builtins.bool"),
}
_DICTS = listed("builtins.dict builtins.dict.fromkeys collections.{OrderedDict Counter ChainMap}")
_COPIES = listed("copy.{copy deepcopy replace} dataclasses.replace")
_COPYING_METHODS = listed("model_copy copy __copy__ __deepcopy__ replace")
_BUILDERS = listed("model_construct model_validate model_validate_json parse_obj")
_SET_RESULTS = listed("union intersection difference symmetric_difference copy")


def _result(name: str, receiver: Value, arguments: Arguments, called_back: Value) -> Value:  # noqa: C901, PLR0911, PLR0912 - one table of cases
    first, method = arguments.first, name.rpartition(".")[2]
    match receiver:
        case (Instance(of=Class() as of),) if method in _BUILDERS | _COPYING_METHODS:
            return values.instance(of)
        case (Class() as of,) if method in _BUILDERS:
            return values.instance(of)
        case (Instance(of="builtins.set" | "builtins.frozenset", element=element),) if method in _SET_RESULTS:
            return collection(name.split(".")[1], join(element, *map(values.element_of, arguments)))
    match name.removeprefix("builtins."):
        case "dict.keys":
            return collection("keys", values.element_of(receiver))
        case "dict.values":
            return collection("iterator", values.item_of(receiver))
        case "dict.items":
            return collection("items", values.row(values.element_of(receiver), values.item_of(receiver)))
        case "dict.get" | "dict.setdefault" | "dict.pop":
            return join(values.item_of(receiver), *arguments.positional[1:])
        case "dict.copy" | "list.copy":
            return values.fresh(receiver)
        case "set.pop" | "list.pop":
            return values.element_of(receiver)
        case "min" | "max" | "next" | "random.Random.choice":
            return values.element_of(first)
        case "enumerate":
            return collection("iterator", values.row(values.NUMBER, values.element_of(first)))
        case "zip":
            return collection("iterator", values.row(*map(values.element_of, arguments.positional)))
        case "collections.defaultdict":
            kinds = {(External(f"builtins.{kind}"),): kind for kind in ("set", "list", "dict")}
            return collection("dict", item=collection(kinds[first]) if first in kinds else called_back)
        case _ if name in _MADE:
            return collection(_MADE[name], values.element_of(first))
        case _ if name in _LAZY:
            yielded = called_back if name == "builtins.map" else join(*map(values.element_of, arguments))
            kind = "unordered" if any(map(values.is_unordered, arguments)) else "iterator"
            return collection(kind, yielded)
        case _ if name in _COPIES:
            return values.fresh(first)
        case _ if name in _DICTS:
            return collection("dict", values.element_of(first), values.item_of(first))
    is_path = name.startswith("pathlib.Path.")
    is_class = method[:1].isupper() and rules.called(name) is None
    made = values.instance("pathlib.Path" if is_path else name) if is_path or is_class else ()
    return _RESULTS.get(name) or made


# Models: validators and default factories are followed.

_VALIDATORS = listed(
    "pydantic.{field_validator model_validator validator root_validator field_serializer model_serializer}"
)


def check_model(class_: Class, given: frozenset[str] = frozenset(), *, nested: bool = True) -> None:
    """Follow the code that may run when a model is decoded or constructed.

    The defaults of fields in `given` are skipped. If `nested` is set, the code of nested models is followed too.
    """
    checker = class_.scope.checker
    key = ("model", class_, given, nested, checker.mode)
    if key in checker.known:
        return
    checker.known[key] = ()
    annotations: list[tuple[ast.AST, Scope]] = []
    for base in class_.users_mro:
        scope = base.body_scope
        with checker.following((base.name, base.node, scope.module)):
            for name, binding in [(name, each) for name, found in base.bindings.items() for each in found]:
                if isinstance(binding, FunctionNode) and _VALIDATORS.intersection(scope.marks(binding)):
                    method = scope.attribute(values.instance(class_), name, binding)
                    scope.call(method, values.OPEN, binding)
                elif isinstance(binding, Assigned) and binding.annotation:
                    annotations += ((each, scope) for each in ast.walk(binding.annotation))
                    _call_functions_in(binding.annotation, scope, is_default=name not in given)
                    if binding.value and name not in given and not _call_functions_in(binding.value, scope):
                        scope.evaluate(binding.value)
    for node, scope in annotations if nested else ():
        for option in scope.quietly(node) if isinstance(node, ast.Name | ast.Attribute) else ():
            if isinstance(option, Class):
                check_model(option)


def _call_functions_in(field: ast.expr, scope: Scope, *, is_default: bool = True) -> bool:
    has_factory = False
    for node in [each for each in ast.walk(field) if isinstance(each, ast.Call)]:
        callee = [each.name for each in scope.quietly(node.func) if isinstance(each, External)]
        is_validator = any(name.endswith(("Validator", "Serializer")) for name in callee)
        for keyword in (*(ast.keyword(None, each) for each in node.args), *node.keywords):
            is_factory = is_default and keyword.arg in {"default_factory", "factory"}
            has_factory |= is_factory
            if is_validator or is_factory:
                scope.call(scope.evaluate(keyword.value), values.OPEN, keyword.value)
    return has_factory
