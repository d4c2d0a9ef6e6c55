"""`--app MODULE:ATTRIBUTE` is found in the working directory, and what is wrong with it is said in one sentence."""

import sys

import pytest

from handlers import App
from runtime import AppNotFoundError, UsageError
from runtime.cli.apps import load_app

GOOD = """
from handlers import App, Context, Handler, Message, State, handles

class Added(Message):
    account: str

class Total(State):
    count: int = 0

class Account(Handler[Total]):
    @handles(by="account")
    def added(self, state: Total, message: Added, context: Context) -> Total:
        return state

app = App(Account)
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Give a working directory in which modules can be put."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_an_app_in_the_working_directory(here):
    (here / "accounts.py").write_text(GOOD)

    app = load_app("accounts:app")

    assert isinstance(app, App)
    assert list(app.handlers) == ["Account"]


def test_an_app_in_a_package_there(here):
    (here / "bank").mkdir()
    (here / "bank" / "accounts.py").write_text(GOOD)

    assert isinstance(load_app("bank.accounts:app"), App)


def test_the_working_directory_comes_first(here):
    (here / "colorsys.py").write_text(GOOD)
    sys.modules.pop("colorsys", None)

    assert isinstance(load_app("colorsys:app"), App)


@pytest.mark.parametrize(
    "spec", ["", "accounts", "accounts:", ":app", "accounts.py:app()", "a b:app", "a/b:app"]
)
def test_another_form_is_wrong_usage(here, spec):
    with pytest.raises(UsageError, match="MODULE:ATTRIBUTE") as raised:
        load_app(spec)

    assert type(raised.value) is UsageError


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ("nowhere:app", r"There is no module nowhere: it was looked for in .* and on Python's path\."),
        ("accounts.deeper:app", r"There is no module accounts\.deeper|accounts\.deeper cannot be imported"),
        ("accounts:other", r"The module accounts has no attribute other\. Its apps: app\."),
        ("accounts:Account", r"accounts:Account is no App but the class Account"),
        ("accounts:__name__", r"accounts:__name__ is no App but of type str"),
    ],
)
def test_what_is_not_there(here, spec, sentence):
    (here / "accounts.py").write_text(GOOD)

    with pytest.raises(AppNotFoundError, match=sentence):
        load_app(spec)


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        ("1 / 0", r"ZeroDivisionError: division by zero \(.*broken\.py:1\)"),
        ("\ndef f():\n    raise ValueError('no')\nf()", r"ValueError: no \(.*broken\.py:3\)"),
        ("def f(:", r"SyntaxError: .* \(.*broken\.py:1\)"),
        (
            "import not_installed_anywhere",
            r"ModuleNotFoundError: No module named 'not_installed_anywhere'.*broken\.py:1",
        ),
        ("import sys; sys.exit('bye')", r"SystemExit: bye \(.*broken\.py:1\)"),
        ("from handlers import App\n\nApp()", r"AppError: An App needs at least one handler.*broken\.py:3"),
    ],
)
def test_a_module_that_raises_says_what_and_where(here, code, sentence):
    (here / "broken.py").write_text(code)

    with pytest.raises(AppNotFoundError, match=f"The module broken cannot be imported: .*{sentence}"):
        load_app("broken:app")
