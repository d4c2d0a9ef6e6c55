"""What a command writes is its owner's alone, and a secret in it draws a warning that says where to put it."""

import os
import stat
from pathlib import Path

import pytest

from eventstore import connect, drive
from runtime.cli.commands.outcomes import OutcomeFiles, Wanted
from runtime.file_systems import open_folder
from tests.support.rounds import COUNTS, Driver

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

    said = consistent("streams", "--store", secret, "--table", "games")

    assert "--store env:NAME" in said.err
    assert "c2VjcmV0" not in said.err + said.out


@pytest.mark.parametrize("store_url", ["env:STORE", "sqlite:///store.db"])
def test_no_secret_no_warning(consistent, store, monkeypatch, store_url):
    monkeypatch.setenv("STORE", "sqlite:///store.db")

    assert consistent("streams", "--store", store_url, "--table", "games").err == ""


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
    assert OutcomeFiles.open(str(out), None, Wanted()).counts().total() == 7
