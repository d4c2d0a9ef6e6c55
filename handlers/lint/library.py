"""Calls of functions and methods of libraries, operators, and the special methods of the user's that these call."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping

from handlers.lint import hazards, resolution, rules, values
from handlers.lint.rules import listed
from handlers.lint.source import FunctionNode, parse_expression
from handlers.lint.values import UNKNOWN, Arguments, Instance, Scope, Value, collection, element_of, join

# Special methods and callbacks.

TEXT_METHODS = ("__format__", "__str__", "__repr__")
_OF_BUILTINS = {
    **{
        f"builtins.{name}": (f"__{name}__",)
        for name in ("len", "repr", "hash", "float", "abs", "round", "next", "reversed")
    },
    "builtins.str": ("__str__", "__repr__"),
    "builtins.format": TEXT_METHODS,
    "builtins.bool": ("__bool__", "__len__"),
    "builtins.int": ("__int__", "__index__"),
    "copy.copy": ("__copy__",),
    "copy.deepcopy": ("__deepcopy__",),
}
_COMPARING = listed("sorted min max", "builtins.")
_ITERATING = _COMPARING | listed(
    "list tuple set frozenset sum any all iter enumerate zip dict map filter", "builtins."
)
_OPERATORS: dict[type[ast.operator], str] = {
    ast.Mult: "mul", ast.Div: "truediv", ast.MatMult: "matmul",
    ast.BitAnd: "and", ast.BitOr: "or", ast.BitXor: "xor",
}  # fmt: skip
"""The names of special methods that are not those of the operators in lower case."""
_SET_OPERATORS = ast.BitOr | ast.BitAnd | ast.Sub | ast.BitXor
_COMPARISONS = {
    ast.Eq: "__eq__", ast.NotEq: "__eq__",
    ast.Lt: "__lt__", ast.LtE: "__le__", ast.Gt: "__gt__", ast.GtE: "__ge__",
}  # fmt: skip


def call_special(value: Value, names: tuple[str, ...], node: ast.AST, *given: Value) -> Value:
    """Follow the first of these methods that an object of the user's has, and return its possible results."""
    results = []
    for option in values.options(value):
        definition = option.definition if isinstance(option, values.Object) else None
        methods = (
            values.Function(base.function(binding), option)
            for name in (names if definition else ())
            for base, binding in (definition.members(name) if definition else ())
            if isinstance(binding, FunctionNode)
        )
        if method := next(methods, None):
            results.append(method.definition.scope.call(method, Arguments(given), node))
    return join(*results)


def iterate(value: Value, node: ast.AST) -> Value:
    """Return what iterating over a value yields, and follow the methods that yield it."""
    given = call_special(value, ("__iter__", "__getitem__"), node)
    following = call_special(given, ("__next__",), node)
    return join(element_of(value), *(each for each in (element_of(given), following) if each != UNKNOWN))


def call_back(arguments: Arguments, given: Value, node: ast.AST, scope: Scope) -> Value:
    """Follow the functions among the arguments, each called with a value; return what they may return."""
    return join(*(
        scope.call(option, Arguments((given,), is_open=True), node)
        for argument in arguments
        for option in values.options(argument)
        if isinstance(option, values.Function | values.Partial)
        or (isinstance(option, values.External) and rules.called(option.name) is not None)
    ))  # fmt: skip


def operate(left: Value, operator: ast.operator, right: Value, node: ast.AST, scope: Scope) -> Value:
    """Return the possible results of an operator, and follow the methods of the user's that it calls."""
    name = _OPERATORS.get(type(operator), type(operator).__name__.lower())
    special = join(
        call_special(left, (f"__{name}__",), node, right), call_special(right, (f"__r{name}__",), node, left)
    )
    if special != UNKNOWN:
        return special
    match operator, left, right:
        case ast.Mod(), _, _ if values.type_name(left) == "builtins.str":
            hazards.check_text(right, node, scope)
            return values.TEXT
        case _ if isinstance(operator, _SET_OPERATORS) and any(map(values.makes_set, (left, right))):
            return collection("set", join(element_of(left), element_of(right)))
        case _, Instance(of=of), _ if not of.startswith("builtins."):
            return values.fresh(left)  # a path, a date, a Decimal
        case ast.Add(), values.Constant(value=str(first)), values.Constant(value=str(second)):
            return values.Constant(first + second)
    if isinstance(operator, ast.Div) or values.is_float(left) or values.is_float(right):
        return values.FLOAT
    literals = [each for each in (left, right) if isinstance(each, values.Constant)]
    if literals == [left, right]:
        return Instance(values.type_name(left))
    known = right if left in literals or (left == UNKNOWN and not literals) else left
    return values.fresh(known) if literals or values.type_name(known) else UNKNOWN


def compare(left: Value, operator: ast.cmpop, right: Value, node: ast.AST) -> None:
    """Follow a comparison of the user's objects."""
    if isinstance(operator, ast.In | ast.NotIn):
        call_special(right, ("__contains__", "__iter__"), node, left)
    elif type(operator) in _COMPARISONS:
        call_special(left, (_COMPARISONS[type(operator)],), node, right)


# Functions of the standard library that are interpreted: they read attributes, import, evaluate, or wrap.


def _getattr(arguments: Arguments, node: ast.AST, scope: Scope) -> Value:
    base, name = arguments.first(), _text(arguments.get(1, ""))
    if name is not None:
        return join(resolution.attribute(base, name, node, scope), *arguments.positional[2:])
    if any(isinstance(each, values.External | values.Package) for each in values.options(base)):
        scope.report("CM901", node, "getattr() with a name that is computed")
    return Value(owner=base.owner)


def _setattr(arguments: Arguments, node: ast.AST, scope: Scope) -> Value:
    hazards.check_changed(arguments.first(), node, scope)
    return UNKNOWN


def _import(arguments: Arguments, node: ast.AST, scope: Scope) -> Value:
    name = _text(arguments.first())
    if name is not None:
        found = scope.checker.modules.find(name)
        return values.Package(found) if found else values.External(rules.canonical(name))
    scope.report("CM901", node, "an import of a name that is computed")
    return UNKNOWN


def _eval(arguments: Arguments, node: ast.AST, scope: Scope) -> Value:
    text = _text(arguments.first())
    if text is None:
        scope.report("CM901", node, "eval() of a text that is computed")
        return UNKNOWN
    parsed = parse_expression(text)
    if parsed is None:
        return UNKNOWN
    for each in ast.walk(parsed):
        if hasattr(each, "lineno"):
            ast.copy_location(each, node)
    return scope.evaluate(parsed)


def _vars(arguments: Arguments, node: ast.AST, scope: Scope) -> Value:
    if not arguments.positional:
        return UNKNOWN
    return resolution.attribute(arguments.first(), "__dict__", node, scope)


def _super(arguments: Arguments, _: ast.AST, scope: Scope) -> Value:
    function = scope.function
    if function is None or function.owner is None:
        return UNKNOWN
    while scope.parent is not None and scope.parent.function is function:
        scope = scope.parent
    first = next(iter(scope.names.values()), UNKNOWN)
    return values.Super(function.owner, arguments.get(1, "") or first)


def _text(value: Value | None) -> str | None:
    """Return a text that is a literal in the source, None for anything else."""
    return value.value if isinstance(value, values.Constant) and isinstance(value.value, str) else None


def _type(arguments: Arguments, *_: object) -> Value:
    return join(*(
        values.Class(each.definition) if isinstance(each, values.Object)
        else values.External(values.type_name(each)) if values.type_name(each)
        else UNKNOWN
        for each in values.options(arguments.first())
    ))  # fmt: skip


def _accessor(arguments: Arguments, *, calls: bool) -> Value:
    name = arguments.first()
    return values.Accessor(str(name.value), calls) if isinstance(name, values.Constant) else UNKNOWN


_Call = Callable[[Arguments, ast.AST, Scope], Value]
_UNCHANGED = listed(
    "builtins.staticmethod builtins.classmethod functools.partialmethod functools.lru_cache functools.cache"
)
_SPECIAL: Mapping[str, _Call] = {
    "builtins.getattr": _getattr,
    "builtins.setattr": _setattr,
    "builtins.delattr": _setattr,
    "builtins.__import__": _import,
    "importlib.import_module": _import,
    "builtins.eval": _eval,
    "builtins.vars": _vars,
    "builtins.globals": lambda _, __, scope: values.Package(scope.module, owner=values.Owner.MODULE),
    "builtins.type": _type,
    "builtins.super": _super,
    "functools.partial": lambda arguments, *_: values.Partial(arguments.first(), arguments.positional[1:]),
    **dict.fromkeys(_UNCHANGED, lambda arguments, *_: arguments.first()),
    "typing.cast": lambda arguments, *_: arguments.get(1, "val") or UNKNOWN,
    "operator.attrgetter": lambda arguments, *_: _accessor(arguments, calls=False),
    "operator.methodcaller": lambda arguments, *_: _accessor(arguments, calls=True),
    "random.Random": lambda *_: Instance("random.Random"),
}
"""By name; each returns the possible results of a call."""

# Functions and classes of libraries, by name.

_STEADY_HASHES = listed("int float bool complex", "builtins.") | listed(
    "decimal.Decimal fractions.Fraction uuid.UUID"
)
_NEVER_CALLED = listed(
    "builtins.isinstance builtins.issubclass builtins.property builtins.callable builtins.hasattr functools.wraps "
    "functools.update_wrapper handlers.App handlers.handles"
)
_CHANGES_FIRST = listed("heappush heappop heapify heapreplace heappushpop", "heapq.") | listed(
    "bisect.insort bisect.insort_left bisect.insort_right operator.setitem operator.delitem operator.iadd operator.ior"
)
_PURE_WITH = {
    # name: position and name of the argument that makes it pure, and the rule that it breaks without
    "time.gmtime": (0, "secs", "CM101"),
    "time.strftime": (1, "t", "CM101"),
    "time.asctime": (0, "t", "CM101"),
    "gzip.compress": (2, "mtime", "CM101"),
    "random.Random": (0, "x", "CM201"),
    "numpy.random.default_rng": (0, "seed", "CM204"),
    "numpy.random.RandomState": (0, "seed", "CM204"),
    "numpy.random.Generator": (0, "bit_generator", "CM204"),
    "numpy.random.PCG64": (0, "seed", "CM204"),
    "datetime.datetime.fromtimestamp": (1, "tz", "CM103"),
    "datetime.datetime.astimezone": (0, "tz", "CM103"),
}
_SHARED = (values.Owner.MODULE, values.Owner.CLASS, values.Owner.DEFAULT)


def call(callee: values.External, arguments: Arguments, node: ast.AST, scope: Scope) -> Value:
    """Return the possible results of a function, and report it when it breaks a rule."""
    name, first = callee.name, arguments.first()
    code = _code(name, arguments)
    if code:
        scope.report(code, node, name)
    hazards.check_call(name, arguments, node, scope)
    call_special(first, _OF_BUILTINS.get(name, ()), node)
    for argument in arguments.positional if name in _ITERATING else ():
        element = iterate(argument, node)
        call_special(element, ("__lt__",) if name in _COMPARING else (), node, element)
    if name in _SPECIAL:
        return _SPECIAL[name](arguments, node, scope)
    owner, _, method = name.rpartition(".")
    is_unbound = owner in {"builtins.list", "builtins.dict", "builtins.set"} and method in hazards.MUTATORS
    if is_unbound or name in _CHANGES_FIRST or method in {"__setattr__", "__delattr__", "__setitem__"}:
        hazards.check_changed(first, node, scope)
    for option in values.options(first) if name == "builtins.next" else ():
        if option.owner in _SHARED:
            hazards.check_changed(option, node, scope)
    called_back = UNKNOWN
    if name not in _NEVER_CALLED:
        given = join(*(element_of(each) for each in arguments if not isinstance(each, values.Function)))
        called_back = call_back(arguments, given, node, scope)
    return _result(name, arguments, called_back)


def _code(name: str, arguments: Arguments) -> str | None:
    """Return the code of the rule that a call breaks."""
    if name in _PURE_WITH:
        position, keyword, code = _PURE_WITH[name]
        return code if arguments.get(position, keyword) in {None, values.Constant(None)} else None
    if name in {"time.localtime", "time.ctime"}:
        return "CM101" if arguments.get(0, "secs") in {None, values.Constant(None)} else "CM103"
    if name == "builtins.hash":
        types = map(values.type_name, values.options(arguments.first()))
        return None if _STEADY_HASHES.issuperset(types) else "CM602"
    if name.endswith(".__hash__") and name.removesuffix(".__hash__") not in _STEADY_HASHES:
        return "CM602"
    return rules.called(name)


# Results of library functions and methods, as far as the rules depend on them.

_MADE = {
    **{f"builtins.{kind}": kind for kind in ("set", "frozenset", "list", "tuple")},
    **dict.fromkeys(listed("builtins.sorted collections.deque"), "list"),
    **dict.fromkeys(listed("builtins.reversed itertools.islice itertools.takewhile"), "iterator"),
}
_TIMES = listed(
    "now utcnow fromtimestamp fromisoformat strptime astimezone replace combine", "datetime.datetime."
)
_PATHS = listed("joinpath with_name with_suffix with_stem cwd home", "pathlib.Path.")
_RESULTS = {
    **dict.fromkeys(listed("str repr format ascii chr", "builtins."), values.TEXT),
    **dict.fromkeys(listed("builtins.float math.fsum statistics.fmean"), values.FLOAT),
    **dict.fromkeys(listed("int len ord round hash", "builtins."), values.NUMBER),
    **dict.fromkeys(_TIMES | {"datetime.datetime"}, Instance("datetime.datetime")),
    **dict.fromkeys(_PATHS, Instance("pathlib.Path")),
    "handlers.Context.new_guid": Instance("uuid.UUID"),
    "builtins.bool": Instance("builtins.bool"),
}
_DICTS = listed("builtins.dict collections.OrderedDict collections.Counter collections.ChainMap")
_COPIES = listed("copy.copy copy.deepcopy dataclasses.replace copy.replace")
_FILE_METHODS = listed("read_text write_text read_bytes write_bytes iterdir rglob")
_COPYING_METHODS = listed("model_copy copy __copy__ __deepcopy__ replace")
_BUILDERS = listed("model_construct model_validate model_validate_json parse_obj")
_SET_RESULTS = listed("union intersection difference symmetric_difference copy")


def _result(name: str, arguments: Arguments, called_back: Value) -> Value:  # noqa: C901, PLR0911 - one table of cases
    """Return the possible results of a function; `called_back` is what the functions among its arguments may return."""
    first = arguments.first()
    if name in _MADE:
        return collection(_MADE[name], element_of(first) if arguments.positional else UNKNOWN)
    if name in hazards.LAZY:
        given = [element_of(each) for each in arguments if isinstance(each, values.Collection)]
        element = called_back if name == "builtins.map" else join(*given)
        return collection("iterator", element, unordered=any(map(values.is_unordered, arguments)))
    if name in _COPIES:
        return values.fresh(first)
    if name in _DICTS:
        items = [values.item_of(each) for each in values.options(first)] if arguments.positional else []
        return collection("dict", element_of(first), item=join(*items))
    match name:
        case "builtins.min" | "builtins.max" | "builtins.next":
            is_iterable = len(arguments.positional) == 1 or name == "builtins.next"
            return element_of(first) if is_iterable else join(*arguments)
        case "builtins.round" if len(arguments.positional) > 1:
            return values.FLOAT
        case "builtins.enumerate":
            return collection("iterator", values.row(values.NUMBER, element_of(first)))
        case "builtins.zip":
            return collection("iterator", values.row(*map(element_of, arguments.positional)))
        case "builtins.dict.fromkeys":
            return collection("dict", element_of(first))
        case "collections.defaultdict":
            kinds = {values.External(f"builtins.{kind}"): kind for kind in ("set", "list", "dict")}
            return collection("dict", item=collection(kinds[first]) if first in kinds else called_back)
    is_class = name.rpartition(".")[2][:1].isupper() and rules.called(name) is None
    return _RESULTS.get(name) or (Instance(name) if is_class else UNKNOWN)


def call_method(method: values.Method, arguments: Arguments, node: ast.AST, scope: Scope) -> Value:
    """Return the possible results of a method of a value whose class is not the user's."""
    receiver, name = method.receiver, method.name
    hazards.check_method(method, arguments, node, scope)
    call_back(arguments, element_of(receiver), node, scope)
    match receiver:
        case Instance(of=class_name):
            if class_name == "random.Random":
                return _of_random(receiver, name, arguments, node, scope)
            return call(values.External(f"{class_name}.{name}"), arguments, node, scope)
        case values.Object(definition=definition) | values.Class(definition=definition):
            if name in _BUILDERS or (isinstance(receiver, values.Object) and name in _COPYING_METHODS):
                return values.Object(definition)
            return collection("dict") if name == "model_dump" else UNKNOWN
        case values.Collection():
            return _of_collection(receiver, name, arguments)
        case values.Constant(value=str()):
            text = values.TEXT
            return collection("list", text) if name in {"split", "splitlines", "rsplit"} else text
    if name in _FILE_METHODS:
        scope.report("CM401", node, name)
    if name == "astimezone" and arguments == Arguments():
        scope.report("CM103", node, "astimezone()")
    return UNKNOWN


def _of_random(receiver: Instance, name: str, arguments: Arguments, node: ast.AST, scope: Scope) -> Value:
    if receiver.owner in _SHARED:
        scope.report("CM205", node, f"random.Random.{name}")
    if name == "shuffle":
        hazards.check_changed(arguments.first(), node, scope)
    if name == "choice":
        return element_of(arguments.first())
    return call(values.External(f"random.Random.{name}"), arguments, node, scope)


def _of_collection(receiver: values.Collection, name: str, arguments: Arguments) -> Value:
    key, item = element_of(receiver), values.item_of(receiver)
    is_dict = receiver.kind == "dict"
    match name:
        case "keys" if is_dict:
            return collection("keys", key)
        case "values" if is_dict:
            return collection("iterator", item)
        case "items" if is_dict:
            return collection("items", values.row(key, item))
        case "get" | "setdefault" | "pop" if is_dict:
            return join(item, *arguments.positional[1:])
        case "copy" if is_dict:
            return values.fresh(receiver)
        case "pop":
            return key
        case _ if name in _SET_RESULTS and not is_dict:
            return collection(receiver.kind, join(key, *map(element_of, arguments)))
    return UNKNOWN
