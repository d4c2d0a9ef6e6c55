"""`consistent lint` checks apps, modules, files and folders, and says with its exit code whether it found anything."""

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
    """Give the working directory, with modules in it."""
    before = set(sys.modules)
    (tmp_path / "bad.py").write_text(BAD)
    (tmp_path / "good.py").write_text(GOOD)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_the_handlers_of_an_app(consistent, here):
    said = consistent("lint", "bad:app")

    assert said.code == 1
    assert said.out == (
        "bad.py:14:28: CM101 wall clock: time.time: a replay reads another time; "
        "use context.now instead (Account.added -> time.time)\n"
        "1 finding in 1 handler, 1 file.\n"
    )


def test_a_module_is_checked_without_being_imported(consistent, here):
    said = consistent("lint", "bad")

    assert said.code == 1
    assert "2 findings in 2 handlers, 1 file." in said.out
    assert "bad" not in sys.modules


def test_files_as_pre_commit_gives_them(consistent, here):
    assert consistent("lint", "good.py", "bad.py").code == 1
    assert consistent("lint", "good.py").code == 0


def test_the_working_directory(consistent, here):
    assert "2 findings in 4 handlers, 2 files." in consistent("lint", ".").out


def test_a_folder_and_all_in_it_but_hidden_folders(consistent, here):
    (here / "src" / ".venv").mkdir(parents=True)
    (here / "src" / ".venv" / "bad.py").write_text(BAD)
    (here / "src" / "good.py").write_text(GOOD)

    said = consistent("lint", "src")

    assert (said.code, said.out) == (0, "Nothing found in 2 handlers, 1 file.\n")


def test_a_file_that_is_named_twice_is_checked_once(consistent, here):
    assert "1 finding in 2 handlers" not in consistent("lint", "bad", "bad.py", "bad:app").out
    assert "2 findings in 2 handlers, 1 file." in consistent("lint", "bad", "bad.py", "bad:app").out


def test_findings_for_machines(consistent, here):
    said = consistent("lint", "bad:app", "--json")

    assert said.code == 1
    (finding,) = said.document["findings"]
    shown = [finding[name] for name in ("path", "line", "column", "code", "instead", "chain")]
    assert shown == ["bad.py", 14, 28, "CM101", "context.now", ["Account.added", "time.time"]]
    assert (said.document["handlers"], said.document["files"]) == (1, 1)


def test_a_note_is_shown_and_is_no_finding(consistent, here):
    (here / "good.py").write_text(
        GOOD.replace("return Total(total=1.0)", "exec(message.account); return state")
    )

    said = consistent("lint", "good")

    assert said.code == 0
    assert "CM901 note: not followed" in said.out
    assert "Nothing found, 1 note in 2 handlers" in said.out


@pytest.mark.parametrize(
    "draw", ["context.random.random()", "chance(context.random)", "getattr(context, 'random')"]
)
def test_draws_that_a_sender_can_foresee_are_noted(consistent, here, draw):
    (here / "good.py").write_text(GOOD.replace("return Total(total=1.0)", f"{draw}; return state"))

    said = consistent("lint", "good", "--notes")

    assert said.code == 0
    assert "CM206 note: predictable draws: context.random" in said.out
    assert consistent("lint", "good").out == "Nothing found in 2 handlers, 1 file.\n"
    assert [each["code"] for each in consistent("lint", "good", "--json").document["notes"]] == ["CM206"]


def test_the_rules(consistent):
    said = consistent("lint", "--rules")

    assert said.code == 0
    assert "CM101" in said.out
    assert "context.new_guid()" in said.out
    assert consistent("lint", "--rules", "--json").document["rules"][0]["name"] == "wall clock"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "The target is missing"),
        (["a b"], "MODULE:ATTRIBUTE, MODULE, FILE.py or a folder, not 'a b'"),
        (["nowhere"], "There is no module nowhere"),
        (["nowhere:app"], "There is no module nowhere"),
        (["bad:nothing"], "The module bad has no attribute nothing"),
        (["nowhere.py"], "nowhere.py cannot be read: No such file or directory."),
        (["broken.py"], "broken.py:1: this is not valid Python"),
        (["broken:app"], "The module broken cannot be imported"),
        (["empty"], "There is no Python source in empty."),
        (["made:app"], "There is no class Made in the source of made.py"),
    ],
)
def test_what_cannot_be_checked(consistent, here, arguments, sentence):
    (here / "broken.py").write_text("def f(:\n")
    (here / "empty").mkdir()
    (here / "made.py").write_text(MADE)

    said = consistent("lint", *arguments)

    assert said.code == 2
    assert said.err.startswith("Error: ")
    assert sentence in said.err
    assert said.err.count("\n") == 1
    assert said.out == ""


def test_the_samples_are_clean(consistent):
    said = consistent("lint", "samples.shooting_range:app", "samples.shooting_range.handlers")

    assert said.code == 0
