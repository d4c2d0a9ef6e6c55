"""What is found in a few lines: loops over sets, `# noqa` comments, what runs at import, models of other modules."""

import pytest

from tests.unit.handlers.lint.conftest import codes

LOOP = "found, count = set(), 0\nfor name in state.names:\n"
TIME = "import time, random\n"
UNUSED = "\ndef unused():\n    return time.time()  # noqa: CM101 another app calls it\n"
NOW = "import time\n\ndef now():\n    return time.time()  # noqa: CM101 shown to nobody\n"
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
    "body",
    [
        "found.add(name.lower())",
        "if name != message.text:\n        found.discard(name)\n    else:\n        count += 1",
        "count += 2\n    continue",
        "if name == message.text:\n        return None",
        "pass",
    ],
)
def test_a_loop_over_a_set_may_do_what_comes_to_the_same_in_any_order(lint, body):
    assert codes(lint(f"{LOOP}    {body}")) == []


@pytest.mark.parametrize(
    "body",
    [
        "if len(found) < 2:\n        found.add(name)",
        "found.add(count)\n    count += 1",
        "if name == message.text:\n        return name",
        "if name == message.text:\n        return None\n    if name:\n        return 1",
        "if (count := count + 1) < 2:\n        found.add(name)",
        "context.publish(Told(id=name))",
        "count = count * 2 + len(name)",
        "found.add(name)\n    break",
        "found.update(name)\n    last = name",
    ],
)
def test_and_nothing_else(lint, body):
    assert codes(lint(f"{LOOP}    {body}")) == ["CM701"]


def test_what_a_later_round_sees_of_an_earlier_one(lint):
    body = "before = []\nfor _ in (1, 2):\n    names = [name for name in before]\n    before = state.names"

    assert codes(lint(body)) == ["CM701"]


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


def test_a_noqa_in_a_helper_silences_too_and_is_not_missed_where_nothing_was_followed(lint):
    assert codes(lint("helpers.now()", before="import helpers", helpers=NOW)) == []
    assert codes(lint("print(1)", before=TIME + UNUSED)) == []


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
    ],
)  # fmt: skip
def test_what_runs_at_import_and_in_other_modules(lint, body, before, modules, expected):
    assert codes(lint(body, before=before, **modules)) == expected


def test_what_is_drawn_once_for_each_process_is_found_where_it_is_drawn(lint):
    (finding,) = lint("print(START)", before="import time\nSTART = time.time()\n").findings

    assert (finding.code, finding.chain) == ("CM101", ("Listener.told", "START"))


def test_a_default_factory_runs_when_a_message_comes_in(lint):
    report = lint("pass", before=READS_SENT, sent=SENT)

    assert [(finding.code, finding.path.name) for finding in report.findings] == [("CM203", "sent.py")]
