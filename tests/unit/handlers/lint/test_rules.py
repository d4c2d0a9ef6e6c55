"""What is found in a few lines: order of sets, `# noqa` comments, code on import, and calls that are followed."""

import pytest

from handlers.lint import RULES, Target, check
from tests.unit.handlers.lint.conftest import codes

LOOP = "found, count = set(), 0\nfor name in state.names:\n"
TIME = "import time, random\n"
UNUSED = "\ndef unused():\n    return time.time()  # noqa: CM101 another app calls it\n"
NOQA = "import time\n\ndef now():\n    return time.time()  # noqa: CM101 shown to nobody\n"
NOW = "import time\n\ndef now():\n    return time.time()\n"
FIRST = "import second\n\ndef go():\n    return second.come()\n"
SECOND = "import time\nimport first\n\ndef come():\n    first.go()\n    return time.time()\n"
SHOW = "def show(names):\n    return [name for name in names]\n"
TWICE = "import time\n\ndef twice(function):\n    return function() + function()\n"
ENDLESS = "def one(values):\n    return two([values])\n\ndef two(values):\n    return one((values, values))\n"
TAKEN = "import time\n\ndef taken(where):\n    return where.now, where.capture('a', time.time)\n"
SENT = """
import uuid
from pydantic import Field
from handlers import Message

class Sent(Message):
    id: uuid.UUID = Field(default_factory=uuid.uuid4)
    text: str = ""
"""
READS_SENT = """
from sent import Sent

class Other(Handler[Data]):
    @handles(by="id")
    def sent(self, state: Data, message: Sent, context: Context) -> Data:
        return state
"""
BOX = """
import time

def now():
    return time.time()

class Box:
    def __init__(self):
        self.begun = now()

def look(box: Box):
    return box.begun
"""
REGISTRY = """
import time
REGISTRY = {}
def register(name):
    def mark(function):
        function.name = name
        REGISTRY[name] = function
        def wrapper(*args):
            return function(*args)
        wrapper.__name__ = name
        return wrapper
    return mark
@register("a")
def one(text):
    return time.time()
def filled(values):
    REGISTRY.update(values)
    return REGISTRY
TABLE = filled({"a": 1})
"""


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("found.add(name.lower())", []),
        ("if name != message.text:\n        found.discard(name)\n    else:\n        count += 1", []),
        ("count += 2\n    continue", []),
        ("if name == message.text:\n        return None", []),
        ("pass", []),
        ("if len(found) < 2:\n        found.add(name)", ["CM701"]),
        ("found.add(count)\n    count += 1", ["CM701"]),
        ("if name == message.text:\n        return name", ["CM701"]),
        ("if name == message.text:\n        return None\n    if name:\n        return 1", ["CM701"]),
        ("if (count := count + 1) < 2:\n        found.add(name)", ["CM701"]),
        ("context.publish(Told(id=name))", ["CM701"]),
        ("count = count * 2 + len(name)", ["CM701"]),
        ("found.add(name)\n    break", ["CM701"]),
        ("found.update(name)\n    last = name", ["CM701"]),
    ],
)
def test_a_loop_over_a_set_may_only_do_what_has_the_same_result_in_any_order(lint, body, expected):
    assert codes(lint(f"{LOOP}    {body}")) == expected


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("time.time()  # noqa: CM101 shown to nobody", []),
        ("time.time()  # noqa: CM101", ["CM902"]),
        ("time.time(); random.random()  # noqa: CM101 shown to nobody", ["CM201"]),
        ("time.time(); random.random()  # noqa: CM101, CM201 shown to nobody", []),
        ("random.random()  # noqa: S311, CM201 shown to nobody", []),
        ("random.random()  # noqa: S311", ["CM201"]),
        ("random.random()  # noqa", ["CM201"]),
        ("print(  # noqa: CM101 shown to nobody\n    time.time(),\n)", []),
        ("print(1)  # noqa: CM101 shown to nobody\ntime.time()", ["CM903", "CM101"]),
        ("print(1)  # noqa: CM101 it was once", ["CM903"]),
        ("time.time(); print('# noqa: CM101 why')", ["CM101"]),
    ],
)
def test_a_noqa_with_a_code_and_a_reason_silences_one_rule_in_one_statement(lint, body, expected):
    assert codes(lint(body, before=TIME)) == expected


def test_every_rule_says_why_and_what_to_use_instead():
    assert list(RULES) == sorted(rule.code for rule in RULES.values())
    assert all(rule.name and rule.why and rule.instead for rule in RULES.values())
    assert [rule.code for rule in RULES.values() if rule.is_note] == ["CM206", "CM901"]


@pytest.mark.parametrize(
    ("body", "before", "modules", "expected"),
    [
        # What a module does while it is imported may change it, but may not depend on clock or chance.
        ("one(message.text)", "from registry import one", {"registry": REGISTRY}, ["CM101"]),
        ("print(TABLE)", "from registry import TABLE", {"registry": REGISTRY}, []),
        ("print(TABLE)\nfilled({})", "from registry import TABLE, filled", {"registry": REGISTRY}, ["CM801"]),
        ("register('b')(print)", "from registry import register", {"registry": REGISTRY}, ["CM801"]),
        ("def inner(): ...\ninner.calls = 1", "", {}, []),
        ("outer.calls = 1", "def outer(): ...\n", {}, ["CM801"]),
        # Messages and states of other modules are read and made by handlers, so what that runs is checked with them.
        ("context.publish(Sent(text='a'))", "from sent import Sent", {"sent": SENT}, ["CM203"]),
        ("context.publish(Sent(id=context.new_guid()))", "from sent import Sent", {"sent": SENT}, []),
        ("show(**{})", "def show(names: 'frozenset[str]'):\n    return [name for name in names]\n", {}, ["CM701"]),
        # What was only looked at is still followed when it is called.
        ("look(**{})", BOX, {}, []),
        ("look(**{}); Box()", BOX, {}, ["CM101"]),
        # A `noqa` in a helper silences too, and is not missed where nothing was followed.
        ("helpers.now()", "import helpers", {"helpers": NOQA}, []),
        ("print(1)", TIME + UNUSED, {}, []),
        # A later round of a loop sees what an earlier one assigned.
        ("before = []\nfor _ in (1, 2):\n    names = [name for name in before]\n    before = state.names", "", {},
         ["CM701"]),
        # Calls are followed: into modules that import each other, by star imports, for each kind of argument, by
        # functions that are passed on, and no deeper than helpers that call themselves.
        ("first.go()", "import first", {"first": FIRST, "second": SECOND}, ["CM101"]),
        ("now()", "from clock import *", {"clock": "from time import time as now\n"}, ["CM101"]),
        ("show(sorted(state.names))", SHOW, {}, []),
        ("show([]); show(state.names)", SHOW, {}, ["CM701"]),
        ("twice(time.time)", TWICE, {}, ["CM101", "CM101"]),
        ("one(state.names)", ENDLESS, {}, []),
        ("textwrap.dedent(message.text)", "import textwrap", {}, []),
        ("pydantic.TypeAdapter(int).validate_python(1)", "import pydantic", {}, []),
        # Captured values may depend on anything. A context that is passed on is still one.
        ('context.capture("a", now); context.capture("b", lambda: now())', NOW, {}, []),
        ('context.capture(name="a", function=time.time)', NOW, {}, []),
        ('context.capture("a", now())', NOW, {}, ["CM101"]),
        ('other.capture("a", lambda: 1) or now()', NOW, {}, ["CM101"]),
        ("taken(context)", TAKEN, {}, []),
    ],
)  # fmt: skip
def test_what_is_found_in_other_functions_and_modules(lint, body, before, modules, expected):
    assert codes(lint(body, before=before, **modules)) == expected


def test_what_is_drawn_once_for_each_process_is_found_where_it_is_drawn(lint):
    (finding,) = lint("print(START)", before="import time\nSTART = time.time()\n").findings

    assert (finding.code, finding.chain) == ("CM101", ("Listener.told", "START"))


def test_a_default_factory_runs_when_a_message_comes_in(lint):
    report = lint("pass", before=READS_SENT, sent=SENT)

    assert [(finding.code, finding.path.name) for finding in report.findings] == [("CM203", "sent.py")]


def test_a_finding_stands_where_the_call_is_and_names_the_way_there(lint):
    report = lint(
        "helpers.pick([1, 2])",
        before="import helpers",
        helpers="import random\n\ndef pick(values):\n    return random.choice(values)\n",
    )

    (finding,) = report.findings
    assert (finding.path.name, finding.line, finding.column) == ("helpers.py", 4, 12)
    assert finding.chain == ("Listener.told", "helpers.pick")
    assert str(finding) == (
        "helpers.py:4:12: CM201 random numbers: random.choice: a replay draws other numbers; "
        "use context.random instead (Listener.told -> helpers.pick -> random.choice)"
    )


def test_relative_imports_within_a_package(lint, tmp_path):
    package = tmp_path / "deep"
    package.mkdir()
    (package / "__init__.py").write_text("from .inner import now\n")
    (package / "inner.py").write_text("from . import clock\n\ndef now():\n    return clock.read()\n")
    (package / "clock.py").write_text("import time\n\ndef read():\n    return time.time()\n")

    report = lint("deep.now()", before="import deep")

    assert [finding.path.name for finding in report.findings] == ["clock.py"]


def test_a_module_of_ones_own_in_a_folder_that_is_no_package(lint, tmp_path):
    (tmp_path / "src" / "shop").mkdir(parents=True)
    (tmp_path / "src" / "shop" / "clock.py").write_text(
        "import time\n\ndef read():\n    return time.time()\n"
    )
    lint("clock.read()", before="from shop import clock")
    listener = (tmp_path / "listener.py").rename(tmp_path / "src" / "shop" / "listener.py")

    assert codes(check([Target(listener)])) == ["CM101"]


@pytest.mark.parametrize("name", ["handlers.py", "random.py", "typing.py"])
def test_a_file_may_have_the_name_of_a_module_that_it_uses(lint, tmp_path, name):
    lint("random.random()", before="import random")
    (tmp_path / "shop").mkdir()
    listener = (tmp_path / "listener.py").rename(tmp_path / "shop" / name)

    assert codes(check([Target(listener)])) == ["CM201"]


def test_a_handler_that_is_asynchronous(lint, tmp_path):
    lint("pass")
    listener = tmp_path / "listener.py"
    listener.write_text(listener.read_text().replace("def told", "async def told"))

    assert codes(check([Target(listener)])) == ["CM502"]
