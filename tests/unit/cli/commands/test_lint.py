"""`consistent lint` checks apps, modules, files and folders. Its exit code tells whether it found anything."""

import sys

import pytest

BAD = """
import time
from handlers import App, Context, Handler, Message, State, handles

class Added(Message):
    account: str

class Total(State):
    total: float = 0.0

class Account(Handler[Total]):
    @handles(by="account")
    def added(self, state: Total, message: Added, context: Context) -> Total:
        return Total(total=time.time())

class Other(Handler[Total]):
    @handles(by="account")
    def added(self, state: Total, message: Added, context: Context) -> Total:
        return Total(total=time.monotonic())

app = App(Account)
"""
MADE = """
import good
from handlers import App

Made = type("Made", (good.Account,), {"__module__": "made"})
app = App(Made)
"""
GOOD = BAD.replace("time.time()", "1.0").replace("time.monotonic()", "2.0")


@pytest.fixture
def here(tmp_path):
    """Make modules in the working directory. They are unloaded afterwards."""
    before = set(sys.modules)
    (tmp_path / "src" / ".venv").mkdir(parents=True)
    files = {"bad.py": BAD, "good.py": GOOD, "src/.venv/bad.py": BAD, "src/good.py": GOOD, "made.py": MADE}
    for name, text in {**files, "broken.py": "def f(:\n"}.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "empty").mkdir()
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_the_handlers_of_an_app_are_checked(consistent, here):
    said, document = consistent("lint", "bad:app"), consistent("lint", "bad:app", "--json").document

    assert said.code == 1
    assert said.out == (
        "bad.py:14:28: CM101 wall clock: time.time: a replay reads another time; "
        "use context.now instead (Account.added -> time.time)\n"
        "1 finding in 1 handler, 1 file.\n"
    )
    (finding,) = document["findings"]
    shown = [finding[name] for name in ("path", "line", "column", "code", "instead", "chain")]
    assert shown == ["bad.py", 14, 28, "CM101", "context.now", ["Account.added", "time.time"]]
    assert (document["handlers"], document["files"]) == (1, 1)


@pytest.mark.parametrize(
    ("targets", "code", "said"),
    [
        ("bad", 1, "2 findings in 2 handlers, 1 file."),
        ("good.py bad.py", 1, "2 findings in 4 handlers, 2 files."),
        ("good.py", 0, "Nothing found in 2 handlers, 1 file."),
        ("src", 0, "Nothing found in 2 handlers, 1 file."),  # without the hidden folder
        ("bad bad.py bad:app", 1, "2 findings in 2 handlers, 1 file."),
        ("samples.shooting_range:app samples.shooting_range.handlers", 0, "Nothing found"),
    ],
)
def test_modules_files_and_folders_are_checked_once(consistent, here, targets, code, said):
    found = consistent("lint", *targets.split())

    assert (found.code, said in found.out) == (code, True), found.out
    assert ("bad" in sys.modules) is ("bad:app" in targets)  # only an app is imported


@pytest.mark.parametrize(
    "draw", ["context.random.random()", "chance(context.random)", "getattr(context, 'random')"]
)
def test_predictable_draws_are_notes_that_must_be_requested(consistent, here, draw):
    (here / "good.py").write_text(GOOD.replace("return Total(total=1.0)", f"{draw}; return state"))

    said = consistent("lint", "good", "--notes")

    assert said.code == 0
    assert "CM206 note: predictable draws: context.random" in said.out
    assert consistent("lint", "good").out == "Nothing found in 2 handlers, 1 file.\n"
    assert [each["code"] for each in consistent("lint", "good", "--json").document["notes"]] == ["CM206"]


def test_a_note_is_shown_and_is_no_finding(consistent, here):
    called = "exec(message.account); return state"
    (here / "good.py").write_text(GOOD.replace("return Total(total=1.0)", called))

    said = consistent("lint", "good")

    assert said.code == 0
    assert "CM901 note: not followed" in said.out
    assert "Nothing found, 1 note in 2 handlers" in said.out


def test_the_rules_are_listed(consistent):
    said = consistent("lint", "--rules")

    assert (said.code, "CM101" in said.out, "context.new_guid()" in said.out) == (0, True, True)
    assert consistent("lint", "--rules", "--json").document["rules"][0]["name"] == "wall clock"


@pytest.mark.parametrize(
    ("targets", "sentence"),
    [
        ([], "The target is missing"),
        (["a b"], "MODULE:ATTRIBUTE, MODULE, FILE.py or a folder, not 'a b'"),
        (["nowhere"], "There is no module nowhere"),
        (["nowhere:app"], "There is no module nowhere"),
        (["nowhere.py"], "nowhere.py cannot be read: No such file or directory."),
        (["broken.py"], "broken.py:1: this is not valid Python"),
        (["empty"], "There is no Python source in empty."),
        (["made:app"], "There is no class Made in the source of made.py"),
    ],
)
def test_an_unusable_target_is_one_sentence(consistent, here, targets, sentence):
    said = consistent("lint", *targets)

    assert (said.code, said.out, said.err.count("\n")) == (2, "", 1)
    assert said.err.startswith("Error: ")
    assert sentence in said.err
