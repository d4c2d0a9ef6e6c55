"""Names that lead straight to an entrance are guarded in the user's own modules, and in no others."""

import sys
import time
import types
import uuid
from uuid import UUID

import pytest

from handlers import NondeterminismError
from handlers.guard import Bindings
from tests.unit.handlers import helper, onlooker
from tests.unit.handlers.onlooker import Onlooker

PYTHONS_OWN = {
    "uuid4": vars(uuid)["uuid4"],
    "time": vars(time)["time"],
}  # in a dict, as this module may be bound too
LIBRARY = "site-packages/a_library_of_others/__init__.py"


class Shy:
    """Raises whatever it is asked for, as proxies do that are not bound yet."""

    def __getattribute__(self, name: str) -> object:
        raise RuntimeError(name)


def module(monkeypatch: pytest.MonkeyPatch, name: str, file: str, **names: object) -> types.ModuleType:
    """Make a module that the onlooker uses."""
    made = types.ModuleType(name)
    made.__file__ = file
    vars(made).update(names)
    monkeypatch.setitem(sys.modules, name, made)
    monkeypatch.setattr(onlooker, name, made, raising=False)
    return made


def test_modules_of_the_user_are_bound_and_a_library_is_not(monkeypatch):
    draw = PYTHONS_OWN["uuid4"]
    users = module(monkeypatch, "made_by_the_user", "/home/user/made_by_the_user.py", shy=Shy(), draw=draw)
    library = module(monkeypatch, "a_library_of_others", f"/usr/lib/{LIBRARY}", draw=draw)

    Bindings([Onlooker], [Onlooker.look]).rebind()

    assert vars(onlooker)["uuid4"] is not draw
    assert vars(helper)["datetime"].__module__ == "handlers.guard_patches"
    assert users.draw is not draw
    assert isinstance(users.draw(), UUID)
    assert library.draw is draw


def test_a_module_that_is_imported_later_is_bound_before_the_next_message(monkeypatch):
    from handlers import Context
    from handlers.guard import guarded
    from tests.unit.handlers.onlooker import House, Look

    run = guarded(onlooker.app).handlers["Onlooker"].routes["Look"].revisions[1]
    look = Look(house="h", how="later"), Context("Onlooker", "h", "m-1", 0)
    run(House(), Look(house="h", how="dates"), look[1])

    users = module(
        monkeypatch, "made_by_the_user", "/home/user/made_by_the_user.py", clock=PYTHONS_OWN["time"]
    )
    monkeypatch.setitem(onlooker.FORBIDDEN, "later", (lambda _: users.clock(), "", ""))

    with pytest.raises(NondeterminismError, match=r"^time.time\(\) in "):
        run(House(), *look)
