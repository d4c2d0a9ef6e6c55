"""Calls are followed into the user's modules, and a finding says where it stands and how a handler comes there."""

import subprocess
import sys

import pytest

from handlers.lint import Target, check
from tests.unit.handlers.lint.conftest import codes


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


def test_a_module_may_import_itself_in_a_circle(lint):
    report = lint(
        "first.go()",
        before="import first",
        first="import second\n\ndef go():\n    return second.come()\n",
        second="import time\nimport first\n\ndef come():\n    first.go()\n    return time.time()\n",
    )

    assert codes(report) == ["CM101"]


def test_relative_imports_within_a_package(lint, tmp_path):
    package = tmp_path / "deep"
    package.mkdir()
    (package / "__init__.py").write_text("from .inner import now\n")
    (package / "inner.py").write_text("from . import clock\n\ndef now():\n    return clock.read()\n")
    (package / "clock.py").write_text("import time\n\ndef read():\n    return time.time()\n")

    report = lint("deep.now()", before="import deep")

    assert [finding.path.name for finding in report.findings] == ["clock.py"]


def test_a_star_import_of_a_module_of_ones_own(lint):
    report = lint("now()", before="from clock import *", clock="from time import time as now\n")

    assert codes(report) == ["CM101"]


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


def test_importing_handlers_does_not_import_the_linter():
    program = "import sys, handlers; print('handlers.lint' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout == "False\n"


def test_installed_packages_and_the_standard_library_are_not_followed(lint):
    assert codes(lint("textwrap.dedent(message.text); pydantic.TypeAdapter(int).validate_python(1)",
                      before="import textwrap\nimport pydantic")) == []  # fmt: skip


def test_a_function_is_followed_for_each_kind_of_argument(lint):
    before = "def show(names):\n    return [name for name in names]\n"

    assert codes(lint("show(sorted(state.names))", before=before)) == []
    assert codes(lint("show([]); show(state.names)", before=before)) == ["CM701"]


def test_functions_given_to_helpers_are_followed(lint):
    report = lint(
        "twice(time.time)", before="import time\n\ndef twice(function):\n    return function() + function()\n"
    )

    assert set(codes(report)) == {"CM101"}


def test_what_is_captured_is_allowed_whatever_it_calls(lint):
    before = "import time\n\ndef now():\n    return time.time()\n"

    assert codes(lint('context.capture("a", now); context.capture("b", lambda: now())', before=before)) == []
    assert codes(lint('context.capture(name="a", function=time.time)', before=before)) == []
    assert codes(lint('context.capture("a", now())', before=before)) == ["CM101"]
    assert codes(lint('other.capture("a", lambda: 1) or now()', before=before)) == ["CM101"]


def test_a_context_that_is_passed_on_is_still_one(lint):
    before = "import time\n\ndef taken(where):\n    return where.now, where.capture('a', time.time)\n"

    assert codes(lint("taken(context)", before=before)) == []


def test_helpers_that_call_themselves_end(lint):
    before = (
        "def one(values):\n    return two([values])\n\ndef two(values):\n    return one((values, values))\n"
    )

    assert codes(lint("one(state.names)", before=before)) == []
