"""Under guard, nondeterministic calls raise an error that names the call, the line and what to use instead."""

import inspect
import os
import pickle
import re
import sys
import threading
import time
import types
import uuid
from datetime import UTC, date, datetime
from os import environ
from uuid import UUID

import pytest
from freezegun import freeze_time
from pydantic import TypeAdapter
from pyspark import cloudpickle

from handlers import App, Context, Handler, Message, NondeterminismError, State, handles
from handlers.guard import Bindings, GuardedDate, GuardedDatetime, guarded
from tests.unit.handlers import helper, onlooker
from tests.unit.handlers.onlooker import ALLOWED, FORBIDDEN, House, Onlooker, look
from tests.unit.handlers.processes import run_python

app = guarded(onlooker.app)


@pytest.mark.parametrize("how", FORBIDDEN)
def test_a_handler_cannot_and_fails_though_it_catches_the_error(how):
    _, call, instead = FORBIDDEN[how]
    onlooker.SEEN.clear()

    for way in (how, f"catch {how}"):
        with pytest.raises(NondeterminismError, match=f"^{re.escape(call)} in .* {re.escape(instead)}"):
            look(app, way)
    assert onlooker.SEEN == ["NondeterminismError"]


@pytest.mark.filterwarnings("ignore:looked")
@pytest.mark.parametrize("how", ALLOWED)
def test_a_handler_can(how, tmp_path, monkeypatch):
    # The case "import" imports this module. Imported modules may look at anything.
    program = "import os, time; BEGUN = time.time(), os.environ['PATH']"
    (tmp_path / "this_is_imported_now.py").write_text(program)
    monkeypatch.syspath_prepend(tmp_path)

    assert look(app, how) == House(looks=1)


@pytest.mark.parametrize(
    ("how", "begin"),
    [("now", "datetime.now() in"), ("helper", "datetime.now() in age_of (helper.py, line 7)")],
)
def test_the_error_names_the_line_of_the_handler_and_of_the_helper_that_looked(how, begin):
    lines, first = inspect.getsourcelines(onlooker.Onlooker.look)
    here = first + next(at for at, line in enumerate(lines) if "FORBIDDEN" in line)

    with pytest.raises(NondeterminismError) as refused:
        look(app, how)

    assert str(refused.value).startswith(begin)
    assert f", called by Onlooker.look (onlooker.py, line {here}) is not allowed, as" in str(refused.value)


def test_outside_of_handlers_everything_is_as_it_was():
    with pytest.raises(NondeterminismError):
        look(app, "now")

    before = time.time()
    assert before <= datetime.now(UTC).timestamp() <= time.time()
    assert onlooker.imported_in_the_function() >= datetime(2026, 1, 1, tzinfo=UTC)  # type: ignore[operator]
    assert onlooker.through_an_alias_of_a_function() >= before
    assert uuid.uuid4() != uuid.uuid4()
    assert environ["PATH"]
    assert time.time.__class__.__name__ == "builtin_function_or_method"


def test_other_threads_look_while_a_handler_runs(monkeypatch):
    runs, looked = threading.Event(), threading.Event()
    seen: list[object] = []

    def others():
        runs.wait(10)
        seen.append((time.time(), datetime.now(UTC), uuid.uuid4(), environ["PATH"]))
        looked.set()

    def hold(_: Context) -> None:
        runs.set()
        assert looked.wait(10)
        seen.append(onlooker.through_an_alias_of_a_function())

    thread = threading.Thread(target=others)
    thread.start()
    monkeypatch.setitem(FORBIDDEN, "hold", (hold, "", ""))

    with pytest.raises(NondeterminismError, match=r"^time.time\(\) in "):
        look(app, "hold")

    thread.join()
    assert len(seen) == 1


def test_an_app_without_guard_is_left_alone_and_a_guarded_one_is_guarded_once():
    look(onlooker.app, "now")
    assert guarded(app) is app


# Names that lead straight to a guarded function are bound in the user's own modules, and in no others.

PYTHONS_OWN = {
    "uuid4": vars(uuid)["uuid4"],
    "time": vars(time)["time"],
}  # a dict, as this module may be bound too
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
    assert vars(helper)["datetime"].__module__ == "handlers.guard"
    assert users.draw is not draw
    assert isinstance(users.draw(), UUID)
    assert library.draw is draw


def test_a_module_that_is_imported_later_is_bound_before_the_next_message(monkeypatch):
    later = guarded(onlooker.app)
    look(later, "dates")

    users = module(monkeypatch, "made_later", "/home/user/made_later.py", clock=PYTHONS_OWN["time"])
    monkeypatch.setitem(onlooker.FORBIDDEN, "later", (lambda _: users.clock(), "", ""))

    with pytest.raises(NondeterminismError, match=r"^time.time\(\) in "):
        look(later, "later")


# What stands for `datetime` and `date` in a handler's modules does all else as they do.

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("stand_in", "own", "name", "value"),
    [(GuardedDatetime, datetime, "datetime", NOON), (GuardedDate, date, "date", NOON.date())],
)
def test_it_makes_pythons_own_and_passes_for_it(stand_in, own, name, value):
    assert vars(onlooker)[name] is stand_in
    made = stand_in(2026, 1, 1)

    assert type(made) is own
    assert made == own(2026, 1, 1)
    assert isinstance(own(2026, 1, 1), stand_in)
    assert issubclass(own, stand_in)
    assert not isinstance(7, stand_in)
    assert stand_in == own
    assert own in {stand_in: 1}
    assert type(stand_in.fromisoformat("2026-01-01")) is own
    assert stand_in.min == own.min
    adapter = TypeAdapter(tuple[stand_in, ...] | None)  # type: ignore[arg-type, valid-type]
    assert adapter.validate_json(adapter.dump_json((value,))) == (value,)


def test_an_app_takes_it_as_the_type_of_a_field():
    class Data(State):
        at: GuardedDatetime | None = None

    class Rang(Message):
        tower: str
        on: GuardedDate

    class Bell(Handler[Data]):
        @handles(by="tower")
        def rang(self, state: Data, message: Rang, context: Context) -> Data:
            return state

    assert "Bell" in App(Bell).handlers


def test_a_guarded_app_survives_pickling_and_is_guarded_where_it_arrives():
    back = pickle.loads(pickle.dumps(guarded(onlooker.app)))

    with pytest.raises(NondeterminismError, match=r"^datetime.now\(\) in "):
        look(back, "now")


def test_spark_pickles_functions_that_use_guarded_modules():
    def looks() -> tuple[int, float]:
        return os.getpid(), time.time()

    assert pickle.loads(cloudpickle.dumps(looks))()[0] == os.getpid()
    assert pickle.loads(pickle.dumps(time)) is time


# The guard and freezegun work together, in whichever order they come.

LONG_AGO = datetime(1999, 12, 31, tzinfo=UTC)
WAYS = ["now", "local now", "now of the module", "date.today", "import in the function", "time", "another name",
        "gmtime"]  # fmt: skip


@pytest.mark.parametrize("how", WAYS)
def test_a_frozen_clock_is_guarded_and_the_clock_after_it_too(how):
    app = guarded(onlooker.app)

    with freeze_time(LONG_AGO):
        with pytest.raises(NondeterminismError):
            look(app, how)
        assert onlooker.imported_in_the_function() == onlooker.now() == LONG_AGO
        assert onlooker.through_an_alias_of_a_function() == LONG_AGO.timestamp()
        assert isinstance(onlooker.new_year(), datetime)

    with pytest.raises(NondeterminismError):
        look(app, how)
    assert onlooker.now() > LONG_AGO
    assert onlooker.through_an_alias_of_a_function() > LONG_AGO.timestamp()


@pytest.mark.parametrize("how", WAYS)
def test_an_app_that_was_guarded_while_the_clock_was_frozen_stays_guarded(how):
    with freeze_time(LONG_AGO):
        app = guarded(onlooker.app)
        with pytest.raises(NondeterminismError):
            look(app, how)

    with pytest.raises(NondeterminismError):
        look(app, how)


FROZEN_BEFORE = """
from freezegun import freeze_time
from tests.unit.handlers import onlooker, test_guard as tests
with freeze_time("1999-12-31"):
    pass  # freezegun remembers the names of modules, and replaces them another time though they changed
for how in tests.WAYS:
    tests.test_a_frozen_clock_is_guarded_and_the_clock_after_it_too(how)
print("all guarded")
"""
FROZEN_FIRST = """
from freezegun import freeze_time
with freeze_time("1999-12-31"):
    from tests.unit.handlers import onlooker, test_guard as tests
    for how in tests.WAYS:
        tests.test_an_app_that_was_guarded_while_the_clock_was_frozen_stays_guarded(how)
for how in tests.WAYS:
    tests.test_a_frozen_clock_is_guarded_and_the_clock_after_it_too(how)
print("all guarded")
"""


@pytest.mark.parametrize("program", [FROZEN_FIRST, FROZEN_BEFORE])
def test_the_guard_may_be_imported_while_the_clock_is_frozen_and_after_it_was(program):
    assert run_python(program, hash_seed=0) == "all guarded\n"
