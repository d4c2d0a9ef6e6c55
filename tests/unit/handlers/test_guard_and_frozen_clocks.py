"""The guard and freezegun work together, in whichever order they come."""

import subprocess
import sys
from datetime import UTC, datetime

import pytest
from freezegun import freeze_time

from handlers import NondeterminismError
from handlers.guard import guarded
from tests.unit.handlers import onlooker
from tests.unit.handlers.onlooker import look
from tests.unit.handlers.processes import REPOSITORY

LONG_AGO = datetime(1999, 12, 31, tzinfo=UTC)
WAYS = ["now", "local now", "now of the module", "date.today", "import in the function", "time", "another name",
        "gmtime"]  # fmt: skip


@pytest.mark.parametrize("how", WAYS)
def test_a_frozen_clock_is_guarded_and_the_clock_after_it_too(how):
    app = guarded(onlooker.app)

    with freeze_time(LONG_AGO):
        with pytest.raises(NondeterminismError):
            look(app, how)
        assert onlooker.imported_in_the_function() == LONG_AGO
        assert onlooker.through_an_alias_of_a_function() == LONG_AGO.timestamp()
        assert onlooker.now() == LONG_AGO

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
from tests.unit.handlers import onlooker, test_guard_and_frozen_clocks as tests
with freeze_time("1999-12-31"):
    pass  # freezegun remembers the names of modules, and replaces them another time though they changed
for how in tests.WAYS:
    tests.test_a_frozen_clock_is_guarded_and_the_clock_after_it_too(how)
print("all guarded")
"""

FROZEN_FIRST = """
from freezegun import freeze_time
with freeze_time("1999-12-31"):
    from tests.unit.handlers import onlooker, test_guard_and_frozen_clocks as tests
    for how in tests.WAYS:
        tests.test_an_app_that_was_guarded_while_the_clock_was_frozen_stays_guarded(how)
for how in tests.WAYS:
    tests.test_a_frozen_clock_is_guarded_and_the_clock_after_it_too(how)
print("all guarded")
"""


@pytest.mark.parametrize("program", [FROZEN_FIRST, FROZEN_BEFORE])
def test_the_guard_may_be_imported_while_the_clock_is_frozen_and_after_it_was(program):
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )

    assert done.stdout == "all guarded\n", done.stderr


def test_a_frozen_clock_gives_the_types_that_it_gives_without_the_guard():
    guarded(onlooker.app)

    with freeze_time(LONG_AGO):
        assert isinstance(onlooker.new_year(), datetime)
        assert onlooker.new_year() - LONG_AGO
