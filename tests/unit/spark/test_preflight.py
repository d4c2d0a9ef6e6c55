"""Apps that workers lack are sent to them."""

import sys
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from runtime.spark.session import ship


class Session:
    """Notes what is in the archives that it is given."""

    def __init__(self) -> None:
        self.archives: dict[str, list[str]] = {}

    def addArtifacts(self, path: str, *, pyfile: bool) -> None:  # noqa: N802 - Spark's name
        assert pyfile
        with zipfile.ZipFile(path) as archive:
            self.archives[Path(path).name] = archive.namelist()


@pytest.fixture
def session() -> Any:
    return Session()


@pytest.fixture
def modules(tmp_path, monkeypatch):
    """Give what makes a module of files, as if it were imported."""

    def make(name: str, *files: str) -> None:
        for file in files:
            (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / file).write_text(f"# {file}")
        module = ModuleType(name)
        if (tmp_path / name).is_dir():
            module.__path__ = [str(tmp_path / name)]
        else:
            module.__file__ = str(tmp_path / f"{name}.py")
        monkeypatch.setitem(sys.modules, name, module)

    return make


def test_a_module_is_one_file(session, modules):
    modules("raffle", "raffle.py", "other.py")
    assert ship(session, "raffle")
    assert list(session.archives.values()) == [["raffle.py"]]


def test_a_package_is_sent_whole_whichever_module_of_it_is_missed(session, modules):
    modules("shop", "shop/__init__.py", "shop/orders/events.py", "shop/notes.txt")
    assert ship(session, "shop.orders.events")
    assert list(session.archives.values()) == [["shop/__init__.py", "shop/orders/events.py"]]


def test_other_content_has_another_name(session, modules, tmp_path):
    modules("raffle", "raffle.py")
    ship(session, "raffle")
    ship(session, "raffle")
    (tmp_path / "raffle.py").write_text("# changed")
    ship(session, "raffle")
    assert len(session.archives) == 2


@pytest.mark.parametrize("name", ["json", "pydantic", "sys", "nowhere"])
def test_what_is_installed_or_of_no_file_is_not_sent(session, name):
    assert not ship(session, name)
    assert session.archives == {}
