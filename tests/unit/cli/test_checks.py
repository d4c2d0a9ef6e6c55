"""Apps, files and stores by what stands on the command line."""

import os
import stat
import sys
from pathlib import Path

import pytest

from eventstore import connect, drive
from handlers import App
from runtime import AppNotFoundError, UsageError
from runtime.cli.checks import load_app
from runtime.cli.commands.outcomes import open_outcomes
from runtime.file_systems import open_folder
from runtime.outcome_files import OutcomeFilter
from tests.support.rounds import COUNTS, Driver

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


def test_the_working_directory_comes_last(here):
    (here / "colorsys.py").write_text(GOOD)

    with pytest.raises(AppNotFoundError, match=r"/colorsys\.py is hidden by .*/lib.*: rename it"):
        load_app("colorsys:app")


def test_a_folder_without_an_app_is_hidden_by_nothing(here):
    (here / "bank").mkdir()

    with pytest.raises(AppNotFoundError) as raised:
        load_app("bank:app")

    assert str(raised.value) == "The module bank has no attribute app."


@pytest.mark.parametrize("name", ["handlers", "runtime", "eventstore", "samples"])
@pytest.mark.parametrize("file", ["{}.py", "{}/__init__.py"])
def test_a_module_with_the_name_of_a_package_of_ours(here, name, file):
    place = here / file.format(name)
    place.parent.mkdir(exist_ok=True)
    place.write_text(GOOD)
    (here / "accounts.py").write_text(f"from {name} import *\n{GOOD}")

    named = place.parent if place.stem == "__init__" else place
    for spec in ("accounts:app", f"{name}:app"):
        with pytest.raises(UsageError) as raised:
            load_app(spec)
        assert str(raised.value).startswith(f"{named} has the same name as a package of consistent-messaging")
        assert f"rename it, for example to my_{named.name}." in str(raised.value)


@pytest.mark.parametrize("spec", ["accounts:app", "handlers.bank:app"])
def test_an_app_from_a_folder_with_such_a_name(here, spec):
    (here / "handlers").mkdir()
    (here / "handlers" / "bank.py").write_text(GOOD)
    (here / "accounts.py").write_text("from handlers.bank import app")

    with pytest.raises(AppNotFoundError, match=r"/handlers has the same name as a package .* my_handlers\."):
        load_app(spec)


@pytest.mark.parametrize("name", ["handlers", "runtime", "eventstore", "samples"])
def test_a_folder_of_other_things_with_such_a_name_hides_nothing(here, name):
    (here / name).mkdir()
    (here / name / "first.jsonl").write_text("{}")
    (here / "accounts.py").write_text(GOOD)

    assert isinstance(load_app("accounts:app"), App)


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
        ("nowhere:app", r"There is no module nowhere in .* or on Python's path\."),
        ("accounts.deeper:app", r"There is no module accounts\.deeper|accounts\.deeper cannot be imported"),
        ("accounts:other", r"The module accounts has no attribute other\. Its apps: app\."),
        (
            "accounts:Account",
            r"not an App but the class Account: add app = App\(Account\), .* accounts:app",
        ),
        ("without:app", r"The module without has no attribute app\. Add to it: app = App\(Account\)\."),
        ("accounts:__name__", r"accounts:__name__ is not an App but of type str"),
    ],
)
def test_what_is_not_there(here, spec, sentence):
    (here / "accounts.py").write_text(GOOD)
    (here / "without.py").write_text(GOOD.replace("app = App(Account)", ""))

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
        ("from handlers import App\n\nApp()", r"An App needs at least one handler.*broken\.py:3"),
    ],
)
def test_a_module_that_raises_says_what_and_where(here, code, sentence):
    (here / "broken.py").write_text(code)

    with pytest.raises(AppNotFoundError, match=f"The module broken cannot be imported: .*{sentence}"):
        load_app("broken:app")


SECRET = "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=c2VjcmV0;EndpointSuffix=core.windows.net"


def others(path: Path) -> int:
    """Return what others than the owner may do."""
    return stat.S_IMODE(path.stat().st_mode) & 0o077


@pytest.fixture
def usual_umask():
    before = os.umask(0o022)
    yield
    os.umask(before)


def test_a_store_is_its_owners_alone(tmp_path, usual_umask):
    store = connect(f"sqlite:///{tmp_path}/store.db")
    drive(store.table("games"))

    assert {path.name: others(path) for path in tmp_path.iterdir()} == {
        "store.db": 0,
        "store.db-shm": 0,
        "store.db-wal": 0,
    }
    drive(store.close())


def test_the_rights_of_a_store_that_is_there_stay(tmp_path, usual_umask):
    file = tmp_path / "store.db"
    file.touch(0o664)
    file.chmod(0o664)

    drive(connect(f"sqlite:///{file}").table("games"))

    assert stat.S_IMODE(file.stat().st_mode) == 0o664


def test_a_folder_of_outcomes_is_its_owners_alone(tmp_path, usual_umask):
    driver = Driver(tmp_path / "out")
    driver.commit()

    (round_,) = (tmp_path / "out").glob("batch_id=*/round=*")
    assert others(round_) == 0


def test_a_command_writes_for_its_owner_alone(consistent, store, usual_umask):
    consistent("letters", "--store", "sqlite:///store.db", "--table", "games", "--export", "letters.jsonl")

    assert others(Path("letters.jsonl")) == 0


@pytest.mark.parametrize("secret", [SECRET, SECRET.replace("AccountKey", "SharedAccessSignature")])
def test_a_secret_on_the_command_line_draws_a_warning(consistent, secret, monkeypatch):
    monkeypatch.setattr("runtime.cli.commands.show.on_table", lambda *_: [])

    said = consistent("show", "--store", secret, "--table", "games")

    assert "--store env:NAME" in said.err
    assert "c2VjcmV0" not in said.err + said.out


@pytest.mark.parametrize("store_url", ["env:STORE", "sqlite:///store.db"])
def test_no_secret_no_warning(consistent, store, monkeypatch, store_url):
    monkeypatch.setenv("STORE", "sqlite:///store.db")

    assert consistent("show", "--store", store_url, "--table", "games").err == ""


def test_foreign_things_in_a_folder_of_outcomes_change_nothing(tmp_path):
    # Given a pipe, a socket and a folder that nobody may read, beside outcomes and among them
    out = tmp_path / "out"
    driver = Driver(out)
    batch = out / "batch_id=night"
    for folder in (out, batch, Path(open_folder(driver.staged).path)):
        folder.mkdir(exist_ok=True)
        os.mkfifo(folder / "pipe.parquet")
        (folder / "lost+found").mkdir(0)
        os.mknod(folder / "socket.parquet", stat.S_IFSOCK | 0o600)

    assert driver.commit().counts == COUNTS
    os.mkfifo(batch / "round=0" / "pipe.parquet")
    driver.folders.remove_staging()

    assert driver.folders.rows(0) == 7
    assert open_outcomes(str(out), None, OutcomeFilter()).counts().total() == 7
