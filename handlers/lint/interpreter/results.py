"""Results of library functions, as far as the rules depend on them."""

from __future__ import annotations

from handlers.lint import names
from handlers.lint.hazards.order import is_lazy
from handlers.lint.values import (
    FLOAT,
    NUMBER,
    TEXT,
    UNKNOWN,
    Arguments,
    Collection,
    Instance,
    Value,
    collection,
    element_of,
    fresh,
    is_unordered,
    item_of,
    join,
    options,
    row,
)

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
_DICTS = frozenset(
    {"builtins.dict", "collections.OrderedDict", "collections.Counter", "collections.ChainMap"}
)
_TEXTS = frozenset({"builtins.str", "builtins.repr", "builtins.format", "builtins.ascii", "builtins.chr"})
_NUMBERS = frozenset({"builtins.int", "builtins.len", "builtins.ord", "builtins.round", "builtins.hash"})
_MEMBERS = frozenset({"builtins.min", "builtins.max", "builtins.next"})
_COPIES = frozenset({"copy.copy", "copy.deepcopy", "dataclasses.replace", "copy.replace"})
_MOMENTS = (
    "datetime.datetime",
    "datetime.datetime.now",
    "datetime.datetime.utcnow",
    "datetime.datetime.fromtimestamp",
    "datetime.datetime.fromisoformat",
    "datetime.datetime.strptime",
    "datetime.datetime.astimezone",
    "datetime.datetime.replace",
    "datetime.datetime.combine",
)
_INSTANCES = {
    **dict.fromkeys(_MOMENTS, "datetime.datetime"),
    "handlers.Context.new_guid": "uuid.UUID",
    "uuid.UUID": "uuid.UUID",
    "builtins.bool": "builtins.bool",
    **{
        f"pathlib.Path.{name}": "pathlib.Path"
        for name in ("joinpath", "with_name", "with_suffix", "with_stem", "cwd", "home")
    },
}


def library_result(name: str, arguments: Arguments, called_back: Value) -> Value:
    """Return the possible results of a function; `called_back` is what the functions among its arguments may return."""
    first = arguments.first()
    if name in _MADE:
        return collection(_MADE[name], element_of(first) if arguments.positional else UNKNOWN)
    if name in _MEMBERS:
        return (
            element_of(first)
            if len(arguments.positional) == 1 or name == "builtins.next"
            else join(*arguments)
        )
    if name in _COPIES:
        return fresh(first)
    if is_lazy(name):
        return _lazy(name, arguments, called_back)
    return _of_plain_type(name, arguments) or _of_dict(name, arguments, called_back)


def _lazy(name: str, arguments: Arguments, called_back: Value) -> Value:
    given = [each for each in arguments if isinstance(each, Collection)]
    element = called_back if name == "builtins.map" else join(*map(element_of, given))
    return collection("iterator", element, unordered=any(map(is_unordered, arguments)))


def _of_plain_type(name: str, arguments: Arguments) -> Value | None:
    if name in _TEXTS:
        return TEXT
    if name in ("builtins.float", "math.fsum", "statistics.fmean"):
        return FLOAT
    if name in _NUMBERS:
        is_rounded = name == "builtins.round" and len(arguments.positional) > 1
        return FLOAT if is_rounded else NUMBER
    if name == "builtins.enumerate":
        return collection("iterator", row(NUMBER, element_of(arguments.first())))
    if name == "builtins.zip":
        return collection("iterator", row(*map(element_of, arguments.positional)))
    if name in _INSTANCES:
        return Instance(_INSTANCES[name])
    return None


def _of_dict(name: str, arguments: Arguments, called_back: Value) -> Value:
    first = arguments.first()
    if name in _DICTS:
        items = [item_of(each) for each in options(first)] if arguments.positional else [UNKNOWN]
        return collection("dict", element_of(first), item=join(*items))
    if name == "builtins.dict.fromkeys":
        return collection("dict", element_of(first))
    if name == "collections.defaultdict":
        made = {"builtins.set": "set", "builtins.list": "list", "builtins.dict": "dict"}
        kind = made.get(getattr(first, "name", ""))
        return collection("dict", item=collection(kind) if kind else called_back)
    is_class = name.rpartition(".")[2][:1].isupper() and names.called(name) is None
    return Instance(name) if is_class else UNKNOWN
