"""Calls of functions and methods of libraries, operators, and the special methods of the user's that these call."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping

from handlers.lint import hazards, resolution, rules
from handlers.lint.rules import listed
from handlers.lint.source import FunctionNode, parse_expression
from handlers.lint.values import (
    FLOAT,
    NUMBER,
    TEXT,
    UNKNOWN,
    Accessor,
    Arguments,
    Class,
    Collection,
    Constant,
    External,
    Function,
    Instance,
    Method,
    Object,
    Owner,
    Package,
    Partial,
    Scope,
    Super,
    Value,
    collection,
    element_of,
    fresh,
    is_float,
    is_unordered,
    item_of,
    join,
    makes_set,
    options,
    row,
    type_name,
)

# Special methods and callbacks.

TEXT_METHODS = ("__format__", "__str__", "__repr__")
_OF_BUILTINS = {
    "builtins.len": ("__len__",),
    "builtins.str": ("__str__", "__repr__"),
    "builtins.format": TEXT_METHODS,
    "builtins.repr": ("__repr__",),
    "builtins.bool": ("__bool__", "__len__"),
    "builtins.hash": ("__hash__",),
    "builtins.int": ("__int__", "__index__"),
    "builtins.float": ("__float__",),
    "builtins.abs": ("__abs__",),
    "builtins.round": ("__round__",),
    "builtins.next": ("__next__",),
    "builtins.reversed": ("__reversed__",),
    "copy.copy": ("__copy__",),
    "copy.deepcopy": ("__deepcopy__",),
}
_COMPARING = listed("sorted min max", "builtins.")
_ITERATING = _COMPARING | listed(
    "list tuple set frozenset sum any all iter enumerate zip dict map filter", "builtins."
)
_OPERATORS = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "truediv",
    ast.FloorDiv: "floordiv",
    ast.Mod: "mod",
    ast.Pow: "pow",
    ast.MatMult: "matmul",
    ast.BitAnd: "and",
    ast.BitOr: "or",
    ast.BitXor: "xor",
    ast.LShift: "lshift",
    ast.RShift: "rshift",
}
_SET_OPERATORS = ast.BitOr | ast.BitAnd | ast.Sub | ast.BitXor
_COMPARISONS = {
    ast.Eq: "__eq__",
    ast.NotEq: "__eq__",
    ast.Lt: "__lt__",
    ast.LtE: "__le__",
    ast.Gt: "__gt__",
    ast.GtE: "__ge__",
}


def call_special(value: Value, names: tuple[str, ...], node: ast.AST, *given: Value) -> Value:
    """Follow the first of these methods that an object of the user's has, and return its possible results."""
    results = []
    for option in options(value):
        definition = option.definition if isinstance(option, Object) else None
        methods = (
            Function(base.function(binding), option)
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
        for option in options(argument)
        if isinstance(option, Function | Partial)
        or (isinstance(option, External) and rules.called(option.name) is not None)
    ))  # fmt: skip


def operate(left: Value, operator: ast.operator, right: Value, node: ast.AST, scope: Scope) -> Value:
    """Return the possible results of an operator, and follow the methods of the user's that it calls."""
    name = _OPERATORS[type(operator)]
    special = join(
        call_special(left, (f"__{name}__",), node, right), call_special(right, (f"__r{name}__",), node, left)
    )
    if special != UNKNOWN:
        return special
    match operator, left, right:
        case ast.Mod(), _, _ if type_name(left) == "builtins.str":
            hazards.check_text(right, node, scope)
            return TEXT
        case _ if isinstance(operator, _SET_OPERATORS) and (makes_set(left) or makes_set(right)):
            return collection("set", join(element_of(left), element_of(right)))
        case _, Instance(of=of), _ if not of.startswith("builtins."):
            return fresh(left)  # a path, a date, a Decimal
        case ast.Add(), Constant(value=str(first)), Constant(value=str(second)):
            return Constant(first + second)
    if isinstance(operator, ast.Div) or is_float(left) or is_float(right):
        return FLOAT
    literals = [each for each in (left, right) if isinstance(each, Constant)]
    if literals == [left, right]:
        return Instance(type_name(left))
    known = right if left in literals or (left == UNKNOWN and not literals) else left
    return fresh(known) if literals or isinstance(known, Collection) or type_name(known) else UNKNOWN


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
    if any(isinstance(each, External | Package) for each in options(base)):
        scope.report("CM901", node, "getattr() with a name that is computed")
    return Value(owner=base.owner)


def _setattr(arguments: Arguments, node: ast.AST, scope: Scope) -> Value:
    hazards.check_changed(arguments.first(), node, scope)
    return UNKNOWN


def _import(arguments: Arguments, node: ast.AST, scope: Scope) -> Value:
    name = _text(arguments.first())
    if name is not None:
        found = scope.checker.modules.find(name)
        return Package(found) if found else External(rules.canonical(name))
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
    return Super(function.owner, arguments.get(1, "") or first)


def _text(value: Value | None) -> str | None:
    """Return a text that is a literal in the source, None for anything else."""
    return value.value if isinstance(value, Constant) and isinstance(value.value, str) else None


def _type(arguments: Arguments, *_: object) -> Value:
    return join(*(
        Class(each.definition) if isinstance(each, Object)
        else External(type_name(each)) if type_name(each)
        else UNKNOWN
        for each in options(arguments.first())
    ))  # fmt: skip


def _attrgetter(arguments: Arguments, *_: object) -> Value:
    name = arguments.first()
    return Accessor(str(name.value), calls=False) if isinstance(name, Constant) else UNKNOWN


def _methodcaller(arguments: Arguments, *_: object) -> Value:
    name = arguments.first()
    return Accessor(str(name.value), calls=True) if isinstance(name, Constant) else UNKNOWN


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
    "builtins.globals": lambda _, __, scope: Package(scope.module, owner=Owner.MODULE),
    "builtins.type": _type,
    "builtins.super": _super,
    "functools.partial": lambda arguments, *_: Partial(arguments.first(), arguments.positional[1:]),
    **dict.fromkeys(_UNCHANGED, lambda arguments, *_: arguments.first()),
    "typing.cast": lambda arguments, *_: arguments.get(1, "val") or UNKNOWN,
    "operator.attrgetter": _attrgetter,
    "operator.methodcaller": _methodcaller,
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
_SHARED = (Owner.MODULE, Owner.CLASS, Owner.DEFAULT)


def call(callee: External, arguments: Arguments, node: ast.AST, scope: Scope) -> Value:
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
    for option in options(first) if name == "builtins.next" else ():
        if option.owner in _SHARED:
            hazards.check_changed(option, node, scope)
    called_back = UNKNOWN
    if name not in _NEVER_CALLED:
        given = join(*(element_of(each) for each in arguments if not isinstance(each, Function)))
        called_back = call_back(arguments, given, node, scope)
    return _result(name, arguments, called_back)


def _code(name: str, arguments: Arguments) -> str | None:
    """Return the code of the rule that a call breaks."""
    if name in _PURE_WITH:
        position, keyword, code = _PURE_WITH[name]
        return code if arguments.get(position, keyword) in {None, Constant(None)} else None
    if name in {"time.localtime", "time.ctime"}:
        return "CM101" if arguments.get(0, "secs") in {None, Constant(None)} else "CM103"
    if name == "builtins.hash":
        is_steady = all(type_name(each) in _STEADY_HASHES for each in options(arguments.first()))
        return None if is_steady else "CM602"
    if name.endswith(".__hash__") and name.removesuffix(".__hash__") not in _STEADY_HASHES:
        return "CM602"
    return rules.called(name)


# Results of library functions and methods, as far as the rules depend on them.

_MADE = {
    "builtins.set": "set",
    "builtins.frozenset": "frozenset",
    "builtins.list": "list",
    "builtins.tuple": "tuple",
    "builtins.sorted": "list",
    "builtins.reversed": "iterator",
    "collections.deque": "list",
    "itertools.islice": "iterator",
    "itertools.takewhile": "iterator",
}
_RESULTS = {
    **dict.fromkeys(listed("str repr format ascii chr", "builtins."), TEXT),
    **dict.fromkeys(listed("builtins.float math.fsum statistics.fmean"), FLOAT),
    **dict.fromkeys(listed("int len ord round hash", "builtins."), NUMBER),
    **dict.fromkeys(
        listed(
            "now utcnow fromtimestamp fromisoformat strptime astimezone replace combine", "datetime.datetime."
        ),
        Instance("datetime.datetime"),
    ),
    **dict.fromkeys(
        listed("joinpath with_name with_suffix with_stem cwd home", "pathlib.Path."), Instance("pathlib.Path")
    ),
    "datetime.datetime": Instance("datetime.datetime"),
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
        given = [element_of(each) for each in arguments if isinstance(each, Collection)]
        element = called_back if name == "builtins.map" else join(*given)
        return collection("iterator", element, unordered=any(map(is_unordered, arguments)))
    if name in _COPIES:
        return fresh(first)
    if name in _DICTS:
        items = [item_of(each) for each in options(first)] if arguments.positional else []
        return collection("dict", element_of(first), item=join(*items))
    match name:
        case "builtins.min" | "builtins.max" | "builtins.next":
            is_iterable = len(arguments.positional) == 1 or name == "builtins.next"
            return element_of(first) if is_iterable else join(*arguments)
        case "builtins.round" if len(arguments.positional) > 1:
            return FLOAT
        case "builtins.enumerate":
            return collection("iterator", row(NUMBER, element_of(first)))
        case "builtins.zip":
            return collection("iterator", row(*map(element_of, arguments.positional)))
        case "builtins.dict.fromkeys":
            return collection("dict", element_of(first))
        case "collections.defaultdict":
            kinds = {External(f"builtins.{kind}"): kind for kind in ("set", "list", "dict")}
            return collection("dict", item=collection(kinds[first]) if first in kinds else called_back)
    is_class = name.rpartition(".")[2][:1].isupper() and rules.called(name) is None
    return _RESULTS.get(name) or (Instance(name) if is_class else UNKNOWN)


def call_method(method: Method, arguments: Arguments, node: ast.AST, scope: Scope) -> Value:
    """Return the possible results of a method of a value whose class is not the user's."""
    receiver, name = method.receiver, method.name
    hazards.check_method(method, arguments, node, scope)
    call_back(arguments, element_of(receiver), node, scope)
    match receiver:
        case Instance(of=class_name):
            if class_name == "random.Random":
                return _of_random(receiver, name, arguments, node, scope)
            return call(External(f"{class_name}.{name}"), arguments, node, scope)
        case Object(definition=definition) | Class(definition=definition):
            if name in _BUILDERS or (isinstance(receiver, Object) and name in _COPYING_METHODS):
                return Object(definition)
            return collection("dict") if name == "model_dump" else UNKNOWN
        case Collection():
            return _of_collection(receiver, name, arguments)
        case Constant(value=str()):
            return collection("list", TEXT) if name in {"split", "splitlines", "rsplit"} else TEXT
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
    return call(External(f"random.Random.{name}"), arguments, node, scope)


def _of_collection(receiver: Collection, name: str, arguments: Arguments) -> Value:
    key, item = element_of(receiver), item_of(receiver)
    is_dict = receiver.kind == "dict"
    match name:
        case "keys" if is_dict:
            return collection("keys", key)
        case "values" if is_dict:
            return collection("iterator", item)
        case "items" if is_dict:
            return collection("items", row(key, item))
        case "get" | "setdefault" | "pop" if is_dict:
            return join(item, *arguments.positional[1:])
        case "copy" if is_dict:
            return fresh(receiver)
        case "pop":
            return key
        case _ if name in _SET_RESULTS and not is_dict:
            return collection(receiver.kind, join(key, *map(element_of, arguments)))
    return UNKNOWN
