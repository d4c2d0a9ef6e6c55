"""The linter gets through any source: large modules, and syntax that is seldom used."""

import ast
import importlib.util
from pathlib import Path

import pytest

from handlers.lint import SourceError, Target, check
from handlers.lint.interpreter import Interpreter
from handlers.lint.source import FunctionNode
from handlers.lint.values import OPEN, Checker, Function, instance
from tests.unit.handlers.lint.conftest import codes

LARGE = ["argparse", "collections", "dataclasses", "functools", "json.decoder", "logging", "random", "textwrap",
         "uuid"]  # fmt: skip
FOUND_IN = {"argparse", "logging", "random", "uuid"}
UNUSUAL = """
match message.text.split(), {"a": [1, *range(3)]}:
    case [["go", *rest], {"a": [first, *_], **others}] if (count := len(rest)) > 2:
        random.choice(rest)
    case (Data(count=number) | Told(text=number)) as both:
        print(both, number)
async def later(*, named: "set[str]" = {1, 2}, **others):
    async for each in others:
        async with each as (a, *b):
            yield await a
class Inner(Data, metaclass=type(Data)):
    x: int = 3
    class Deeper:
        y = [z for z in range(3)]
        def f(self, a, /, b=1, *c, d, **e): return super().f(a) + Inner.Deeper.y
try:
    (lambda *a, k=(yield), **w: [*a, *w, k])(1, *state.names, **{"k": 2})
except* (ValueError, KeyError) as group:
    raise group from None
else:
    del message.extra[1:2, ...], context
finally:
    x = y = [*"ab"][::-1]; x[0], (y, *z) = 1, (2, 3)
    i: int
    i = not -x[0] if x < y < z is not None else {**{}, 1: 2}
    assert i, f"{x!r:>{10}} {y=}"
while (n := state.count) and True: break
else: global elsewhere; elsewhere = n
nested = [[lambda: (a, b) for a in range(3) if a] for b in {c: d for c, d in zip("a", "b")}]
with open("a") as f, (yield) as g.h: print(f @ g, 1 if f else 2, ~3, f[1:2], ...)
"""


@pytest.mark.thorough
@pytest.mark.parametrize("name", LARGE)
def test_large_modules_are_followed_to_their_end(name):
    spec = importlib.util.find_spec(name)
    assert spec is not None
    assert spec.origin is not None
    checker = Checker(Interpreter)
    module = checker.modules.open(Path(spec.origin))
    top = checker.top(module)

    # When each function is followed with unknown arguments
    classes = [top.class_of(node) for node in ast.walk(module.tree) if isinstance(node, ast.ClassDef)]
    owners = [(each, node) for each in (None, *classes) for node in (each.node if each else module.tree).body]
    functions = [
        owner.function(node, instance(owner)) if owner else Function(node, top)
        for owner, node in owners
        if isinstance(node, FunctionNode)
    ]
    for function in functions:
        top.call((function,), OPEN, function.node)

    assert len(functions) > 5
    assert checker.findings or name not in FOUND_IN


def test_unusual_syntax(lint):
    found = codes(lint(UNUSUAL, before="import random"))

    assert {"CM201", "CM401", "CM701", "CM801", "CM807"} <= set(found)


def test_an_expression_that_is_nested_deeply(lint):
    report = lint(f"print({' + '.join(['1'] * 400)}); random.random()", before="import random")

    assert codes(report) == ["CM201"]
    assert report.notes == ()


def test_a_file_without_handlers(tmp_path):
    (tmp_path / "empty.py").write_text("")

    report = check([Target(tmp_path / "empty.py")])

    assert (report.findings, report.handlers, report.files) == ((), 0, 1)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"def f(:\n", r"source\.py:1: this is not valid Python: "),
        (b"\xff\xfe\n", r"source\.py is not Python source: "),
        (b"x = '\0'\n", r"source\.py"),
    ],
)
def test_what_cannot_be_parsed_is_said_in_one_sentence(tmp_path, content, sentence):
    (tmp_path / "source.py").write_bytes(content)

    with pytest.raises(SourceError, match=sentence) as raised:
        check([Target(tmp_path / "source.py")])

    assert "\n" not in str(raised.value)


def test_a_helper_that_cannot_be_parsed_is_said_too(lint):
    with pytest.raises(SourceError, match=r"helpers\.py:1"):
        lint("helpers.f()", before="import helpers", helpers="def f(:")
