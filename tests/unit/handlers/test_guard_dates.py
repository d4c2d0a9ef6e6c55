"""What stands for `datetime` and `date` in a handler's modules does all else as they do."""

import pickle
from datetime import UTC, date, datetime

import pytest
from pydantic import TypeAdapter

from handlers import App, Context, Handler, Message, State, handles
from handlers.guard import guarded
from handlers.guard_patches import GuardedDate, GuardedDatetime
from tests.unit.handlers import onlooker
from tests.unit.handlers.onlooker import House, Look

guarded(onlooker.app)
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

    with pytest.raises(Exception, match=r"^datetime.now\(\) in "):
        back.handlers["Onlooker"].routes["Look"].revisions[1](
            House(), Look(house="h", how="now"), Context("Onlooker", "h", "m-1", 0)
        )


def test_spark_pickles_functions_that_use_guarded_modules():
    import os
    import time

    from pyspark import cloudpickle

    def looks() -> tuple[int, float]:
        return os.getpid(), time.time()

    assert pickle.loads(cloudpickle.dumps(looks))()[0] == os.getpid()
    assert pickle.loads(pickle.dumps(time)) is time
