"""Under guard, nondeterministic calls raise an error that names the call, the line and what to use instead."""

import inspect
import re
import threading
import time
import uuid
from datetime import UTC, datetime
from os import environ

import pytest

from handlers import Context, NondeterminismError
from handlers.guard import guarded
from tests.unit.handlers import onlooker
from tests.unit.handlers.onlooker import ALLOWED, FORBIDDEN, House, Look

app = guarded(onlooker.app)


def look(how: str) -> House:
    method = app.handlers["Onlooker"].routes["Look"].revisions[1]
    return method(House(), Look(house="h", how=how), Context("Onlooker", "h", "m-1", 0))  # type: ignore[return-value]


@pytest.mark.parametrize("how", FORBIDDEN)
def test_a_handler_cannot_and_fails_though_it_catches_the_error(how):
    _, call, instead = FORBIDDEN[how]
    onlooker.SEEN.clear()

    for way in (how, f"catch {how}"):
        with pytest.raises(NondeterminismError, match=f"^{re.escape(call)} in .* {re.escape(instead)}"):
            look(way)
    assert onlooker.SEEN == ["NondeterminismError"]


@pytest.mark.filterwarnings("ignore:looked")
@pytest.mark.parametrize("how", [how for how in ALLOWED if how != "import"])
def test_a_handler_can(how):
    assert look(how) == House(looks=1)


def test_a_module_that_is_imported_by_a_handler_may_look_at_anything(tmp_path, monkeypatch):
    (tmp_path / "this_is_imported_now.py").write_text(
        "import os, time; BEGUN = time.time(), os.environ['PATH']"
    )
    monkeypatch.syspath_prepend(tmp_path)

    assert look("import") == House(looks=1)


def test_the_error_names_the_line_of_the_handler_and_of_the_helper_that_looked():
    lines, first = inspect.getsourcelines(onlooker.Onlooker.look)
    here = first + next(at for at, line in enumerate(lines) if "FORBIDDEN" in line)

    for how, begin in (
        ("now", "datetime.now() in"),
        ("helper", "datetime.now() in age_of (helper.py, line 7)"),
    ):
        with pytest.raises(NondeterminismError) as refused:
            look(how)
        assert str(refused.value).startswith(begin)
        assert str(refused.value).endswith(
            f", called by Onlooker.look (onlooker.py, line {here}) is not allowed, as a replay may differ: "
            f"use context.now."
        )


def test_outside_of_handlers_everything_is_as_it_was():
    with pytest.raises(NondeterminismError):
        look("now")

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
        seen.append(
            (time.time(), datetime.now(UTC), uuid.uuid4(), environ["PATH"], onlooker.HERE.read_text())
        )
        looked.set()

    def hold(_: Context) -> None:
        runs.set()
        assert looked.wait(10)
        seen.append(onlooker.through_an_alias_of_a_function())

    thread = threading.Thread(target=others)
    thread.start()
    monkeypatch.setitem(FORBIDDEN, "hold", (hold, "", ""))

    with pytest.raises(NondeterminismError, match=r"^time.time\(\) in "):
        look("hold")

    thread.join()
    assert len(seen) == 1


def test_an_app_without_guard_is_left_alone_and_a_guarded_one_is_guarded_once():
    onlooker.app.handlers["Onlooker"].routes["Look"].revisions[1](
        House(), Look(house="h", how="now"), Context("Onlooker", "h", "m-1", 0)
    )
    assert guarded(app) is app
