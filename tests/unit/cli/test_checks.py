"""Apps, files and stores by their names on the command line."""

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
PACKAGES = ["handlers", "runtime", "eventstore", "samples"]


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Make a working directory with modules of apps. They are unloaded afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    (tmp_path / "bank").mkdir()
    for file in ("accounts.py", "bank/accounts.py", "colorsys.py"):
        (tmp_path / file).write_text(GOOD)
    (tmp_path / "without.py").write_text(GOOD.replace("app = App(Account)", ""))
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.mark.parametrize("spec", ["accounts:app", "bank.accounts:app"])
def test_an_app_is_found_in_the_working_directory(here, spec):
    app = load_app(spec)

    assert isinstance(app, App)
    assert list(app.handlers) == ["Account"]


@pytest.mark.parametrize("name", PACKAGES)
@pytest.mark.parametrize("file", ["{}.py", "{}/__init__.py", "{}/bank.py"])
def test_a_module_with_the_name_of_a_package_of_ours_is_refused(here, name, file):
    place = here / file.format(name)
    place.parent.mkdir(exist_ok=True)
    place.write_text(GOOD)
    (here / "others.py").write_text(f"from {name}.bank import app")

    named = place if place.parent == here else place.parent
    for spec in ("others:app", f"{name}.bank:app"):
        with pytest.raises((UsageError, AppNotFoundError)) as raised:
            load_app(spec)
        assert f"{named} has the same name as a package of consistent-messaging" in str(raised.value)
        assert f"rename it, for example to my_{named.name}." in str(raised.value)


@pytest.mark.parametrize(
    "spec", ["", "accounts", "accounts:", ":app", "accounts.py:app()", "a b:app", "a/b:app"]
)
def test_another_form_is_a_usage_error(here, spec):
    with pytest.raises(UsageError, match="MODULE:ATTRIBUTE") as raised:
        load_app(spec)

    assert type(raised.value) is UsageError


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ("nowhere:app", r"There is no module nowhere in .* or on Python's path\."),
        ("accounts.deeper:app", r"There is no module accounts\.deeper|accounts\.deeper cannot be imported"),
        ("accounts:other", r"The module accounts has no attribute other\. Its apps: app\."),
        ("accounts:Account", r"not an App but the class Account: add app = App\(Account\), .* accounts:app"),
        ("without:app", r"The module without has no attribute app\. Add to it: app = App\(Account\)\."),
        ("bank:app", r"The module bank has no attribute app\.$"),
        ("accounts:__name__", r"accounts:__name__ is not an App but of type str"),
        (
            "colorsys:app",
            r"/colorsys\.py is hidden by .*/lib.*: rename it",
        ),  # the working directory comes last
    ],
)
def test_a_missing_app_is_named_with_what_to_write(here, spec, sentence):
    with pytest.raises(AppNotFoundError, match=sentence):
        load_app(spec)


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        ("1 / 0", r"ZeroDivisionError: division by zero \(.*broken\.py:1\)"),
        ("\ndef f():\n    raise ValueError('no')\nf()", r"ValueError: no \(.*broken\.py:3\)"),
        ("def f(:", r"SyntaxError: .* \(.*broken\.py:1\)"),
        ("import not_there", r"No module named 'not_there'.*broken\.py:1.*Install it, or correct the name"),
        ("import sys; sys.exit('bye')", r"SystemExit: bye \(.*broken\.py:1\)"),
        ("from handlers import App\n\nApp()", r"An App needs at least one handler.*broken\.py:3"),
        ("from half import number\napp = 1", r"Two modules import each other: move the shared code"),
        (GOOD.replace('(by="account")', ""), r'write @handles\(by="FIELD"\)'),
    ],
)
def test_a_module_that_raises_says_what_and_where(here, code, sentence):
    (here / "broken.py").write_text(code)
    (here / "half.py").write_text("from broken import app\nnumber = 1\n")

    with pytest.raises(AppNotFoundError, match=f"The module broken cannot be imported: .*{sentence}"):
        load_app("broken:app")


SECRET = "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=c2VjcmV0;EndpointSuffix=core.windows.net"


def others(path: Path) -> int:
    """Return the rights of other users."""
    return stat.S_IMODE(path.stat().st_mode) & 0o077


@pytest.fixture
def usual_umask():
    before = os.umask(0o022)
    yield
    os.umask(before)


def test_files_are_readable_by_their_owner_only(consistent, tmp_path, usual_umask):
    url = f"sqlite:///{tmp_path}/new.db"
    opened = connect(url)
    drive(opened.table("games"))
    files = {"new.db", "new.db-shm", "new.db-wal"}
    assert {path.name: others(path) for path in tmp_path.glob("new*")} == dict.fromkeys(files, 0)
    drive(opened.close())

    consistent("letters", "--store", url, "--table", "games", "--export", "letters.jsonl")
    Driver(tmp_path / "out").commit()

    (round_,) = (tmp_path / "out").glob("batch_id=*/round=*")
    assert [others(path) for path in (Path("letters.jsonl"), round_)] == [0, 0]


def test_the_rights_of_an_existing_store_stay(tmp_path, usual_umask):
    file = tmp_path / "store.db"
    file.touch(0o664)
    file.chmod(0o664)

    drive(connect(f"sqlite:///{file}").table("games"))

    assert stat.S_IMODE(file.stat().st_mode) == 0o664


@pytest.mark.parametrize("secret", [SECRET, SECRET.replace("AccountKey", "SharedAccessSignature")])
def test_a_secret_on_the_command_line_causes_a_warning(consistent, secret, monkeypatch):
    monkeypatch.setattr("runtime.cli.commands.show.on_table", lambda *_: [])

    said = consistent("show", "--store", secret, "--table", "games")

    assert "--store env:NAME" in said.err
    assert "c2VjcmV0" not in said.err + said.out
    monkeypatch.setenv("STORE", "sqlite:///store.db")
    for url in ("env:STORE", "sqlite:///store.db"):
        assert consistent("show", "--store", url, "--table", "games").err == ""


@pytest.mark.parametrize(
    "url", ["AccountName=a;AccountKey={}", "https://a.table.core.windows.net/?sig{}", "x:{}"]
)
def test_an_invalid_store_url_is_refused_without_its_secret(consistent, url):
    said = consistent("show", "--store", url.format("c2VjcmV0"), "--table", "no table")

    assert said.code == 2
    assert "c2VjcmV0" not in said.err + said.out


def test_foreign_things_in_a_folder_of_outcomes_change_nothing(tmp_path):
    # Given a pipe, a socket and an unreadable folder, next to outcomes and among them
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
