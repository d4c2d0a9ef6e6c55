"""`read_state`, `read_versions`, `read_batches` and `read_letters`: columns, models, and what is refused."""

from datetime import UTC, datetime
from math import inf
from types import new_class
from typing import Any, cast

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventstore import Table, TableNotFoundError, connect, drive
from handlers import App, Context, Handler, Message, State, handles
from runtime import Processor, UsageError
from runtime.errors import StoredDataError
from runtime.ledger.batch import BatchContext
from runtime.ledger.ledger import Ledger
from runtime.ledger.settings import TableDemands, TableOwner
from runtime.messages.envelope import id_text
from runtime.tables import read_letters, read_state, read_versions
from runtime.tables.columns import ModelColumns, id_texts
from samples.shooting_range import app as shooting_range
from tests.support.names import new_name
from tests.unit.cli.stores import on_store, play
from tests.unit.runtime import diary
from tests.unit.runtime.diary import misbehave, write
from tests.unit.runtime.worker import ToldClock, Worker


def new_table() -> tuple[str, Table]:
    """Return the url of a new store, and its table."""
    url = f"memory:{new_name()}"
    return url, drive(connect(url).table("states"))


@pytest.fixture
def games() -> str:
    url = f"memory:{new_name()}"
    on_store(url, play)
    return url


@pytest.fixture
def diaries() -> str:
    url, table = new_table()
    ledger = Ledger(table, ToldClock())
    record = drive(ledger.begin("night", "a log", "out"))
    worker = Worker(table, batch=BatchContext("night", number=record.number))
    worker.process(write("line", headers={"from": "me"}), misbehave("fail", "bad"))
    return url


def test_a_version_has_all_that_is_recorded(diaries):
    (row,) = read_versions(diaries, "states").to_pylist()

    assert (row["message_id"], row["batch"], row["batch_number"]) == ("line", "night", 1)
    assert (dict(row["headers"]), dict(row["captured"])) == ({"from": "me"}, {"sky": '"blue"'})
    assert row["before"] == '{"lines":[],"words":[],"weight":0.0}'
    assert row["after"] == '{"lines":["line"],"words":["line"],"weight":0.0}'
    assert row["now"] == datetime(2026, 1, 1, tzinfo=UTC)
    assert len(row["fingerprint"]) == len(row["state_digest"]) == len(row["outputs_digest"]) == 16


def test_a_body_that_is_no_text_is_shown_as_json():
    url, table = new_table()

    async def ignore(_output): ...

    line: Any = write("line")._replace(body=cast("Any", {"lines": ["x"]}))
    drive(Processor(diary.app, table, ignore).process(line))

    assert read_letters(url, "states")["body"].to_pylist() == ['{"lines": ["x"]}']


def test_with_an_app_states_are_structs_of_the_model(games):
    found = read_state(games, "games", handler="ShootingRange", app=shooting_range)

    assert found.schema.field("state").type.num_fields == 2
    assert {tuple(sorted(each)) for each in found["state"].to_pylist()} == {
        ("number_of_attempts", "target_position")
    }
    versions = read_versions(games, "games", handler="ShootingRange", app=shooting_range)
    assert {"target_position": 40, "number_of_attempts": 1} in versions["after"].to_pylist()


def test_lists_sets_and_numbers_of_a_model_have_types_of_their_own(diaries):
    found = read_versions(diaries, "states", handler="Diary", app=diary.app)

    of_list = "list<item: string>"
    assert (
        str(found.schema.field("after").type) == f"struct<lines: {of_list}, words: {of_list}, weight: double>"
    )
    assert found["after"].to_pylist() == [{"lines": ["line"], "words": ["line"], "weight": 0.0}]


@pytest.mark.parametrize(
    ("model", "state", "expected"),
    [
        (
            shooting_range.handlers["ShootingRange"],
            b'{"number_of_attempts":3,"wind":1}',
            {"target_position": None, "number_of_attempts": 3},
        ),
        (
            diary.app.handlers["Diary"],
            b'{"lines":null,"weight":"Infinity","mood":[]}',
            {"lines": None, "words": None, "weight": inf},
        ),
    ],
)
def test_fields_that_a_state_lacks_are_null_and_unknown_ones_are_left_out(model, state, expected):
    columns = ModelColumns(model)

    values = columns.read(1, [state])

    assert pa.array(values, columns.type).to_pylist() == [expected]


@pytest.mark.parametrize(
    ("model", "states", "problem"),
    [
        (
            shooting_range.handlers["ShootingRange"],
            ["[]", "7", '{"number_of_attempts":1.5}', '{"number_of_attempts":1e999}'],
            "A state cannot be read as",
        ),
        (
            diary.app.handlers["Diary"],
            ['{"lines":"abc"}', '{"lines":{"a":1}}', '{"lines":7}'],
            "is where the model has a list",
        ),
    ],
)
def test_what_is_no_state_of_the_model_is_not_taken_for_one(model, states, problem):
    for state in states:
        with pytest.raises(StoredDataError, match=problem):
            ModelColumns(model).read(1, [state.encode()])


class Poured(Message):
    cup: str


class Old(State):
    litres: int = 1


class New(State, version=2, upcasters={1: lambda old: {"millilitres": old["litres"] * 1000}}):
    millilitres: int = 0


class NeverStored(State, version=2, upcasters={1: lambda old: {"pints": old["gills"] * 4}}):
    pints: int = 0


class Grains(State):
    """Twice as many on each square of the chessboard."""

    on_square: int = 2**62


def cup(model: Any, pour: Any) -> App:
    """Return an app whose handler keeps a state of this model, which a function changes."""

    def poured(_: Any, state: State, message: Poured, context: Context) -> Any:
        return model(**pour(state))

    poured.__annotations__.update({"state": model, "return": model})
    members = {"poured": handles(by="cup")(poured)}
    return App(new_class("Cup", (Handler[model],), exec_body=lambda names: names.update(members)))


OLD = cup(Old, lambda state: {"litres": state.litres + 1})
GRAINS = cup(Grains, lambda state: {"on_square": state.on_square * 2})


def poured_once(app: App) -> str:
    """Return the url of a store with the stream of a cup that somebody has poured once."""
    url, table = new_table()
    Worker(table, app, business_id="c").process(diary.delivery("m", "Poured", {"cup": "c"}))
    return url


def test_older_states_are_upcast_to_the_model():
    url = poured_once(OLD)

    found = read_state(url, "states", handler="Cup", app=cup(New, lambda _: {}))

    assert found["state"].to_pylist() == [{"millilitres": 2000}]
    assert read_state(url, "states")["state"].to_pylist() == ['{"litres":2}']


@pytest.mark.parametrize("read", [read_state, read_versions])
def test_a_state_that_the_model_does_not_understand_is_named(read):
    with pytest.raises(StoredDataError, match="as NeverStored") as raised:
        read(poured_once(OLD), "states", handler="Cup", app=cup(NeverStored, lambda _: {}))

    assert (raised.value.stream, raised.value.table) == ("Cup-c", "states")


@pytest.mark.parametrize("read", [read_state, read_versions])
@pytest.mark.parametrize("columns", [None, ["business_id"], []])
def test_a_state_that_its_columns_cannot_hold_is_named(read, columns):
    url, state = poured_once(GRAINS), "state" if read is read_state else "after"
    wanted = None if columns is None else [*columns, state]

    with pytest.raises(UsageError, match=r"does not fit its columns.* Omit the app") as raised:
        read(url, "states", handler="Cup", app=GRAINS, columns=wanted)

    assert ("c does not fit" in str(raised.value)) is (columns != [])
    assert read(url, "states", columns=wanted)[state].to_pylist() == [f'{{"on_square":{2**63}}}']


@pytest.mark.parametrize(
    ("read", "options", "sentence"),
    [
        (read_state, {"columns": ["stat"]}, "There is no column stat. Choose from handler"),
        (read_state, {"columns": "state"}, "a list of names, such as .'state'."),
        (read_state, {"as_of": "noon"}, "'noon' is not a valid time"),
        (read_state, {"as_of": 7}, "7 is not a valid time"),
        (read_state, {"as_of": "2026-01-01", "batch_id": "b"}, "a time or a batch, not both"),
        (read_state, {"batch_id": "b"}, "There is no batch b"),
        (read_state, {"app": shooting_range}, "An app needs a handler"),
        (read_state, {"app": shooting_range, "handler": "X"}, "The app has no handler X"),
        (read_state, {"app": "module:app"}, "must be an App, not 'module:app'"),
        (read_versions, {"change_end_batch_id": "b"}, "need the option read_change_feed"),
        (read_versions, {"since": "2026-01-02", "until": "2026-01-01"}, ".since. is after .until."),
        (read_state, {"handler": "Range-7d44"}, "not a handler's name"),
        (read_versions, {"handler": "Range-7d44"}, "not a handler's name"),
        (read_letters, {"handler": "Range-7d44"}, "not a handler's name"),
    ],
)
def test_what_is_asked_for_wrongly_is_refused(games, read, options, sentence):
    with pytest.raises(UsageError, match=sentence):
        read(games, "games", **options)


@pytest.mark.parametrize("read", [read_state, read_versions, read_letters])
def test_a_handler_that_a_table_has_not_is_named_and_one_that_it_has_may_have_nothing(read):
    url, table = new_table()
    demands = TableDemands(TableOwner.of(diary.app))
    drive(Ledger(table, ToldClock()).begin("first", "log", "out", demands=demands))

    assert read(url, "states", handler="Diary").num_rows == 0
    assert read(url, "states", handler="Diary", business_id="x").num_rows == 0
    with pytest.raises(UsageError, match=r"no handler Diry\. .* Diary"):
        read(url, "states", handler="Diry")


def test_a_feed_that_ends_before_it_begins_is_refused():
    url, table = new_table()
    ledger = Ledger(table, ToldClock())
    for name in ("first", "second"):
        drive(ledger.publish(drive(ledger.begin(name, "log", "out"))))

    def feed(start: str, end: str) -> pa.Table:
        between = {"change_start_batch_id": start, "change_end_batch_id": end}
        return read_versions(url, "states", read_change_feed=True, **between)  # type: ignore[arg-type]

    assert feed("first", "second").num_rows == feed("second", "second").num_rows == 0
    with pytest.raises(UsageError, match="ends with batch first, which began before second"):
        feed("second", "first")


def test_a_table_that_is_not_there_is_not_made(tmp_path):
    with pytest.raises(TableNotFoundError):
        read_state(f"sqlite:///{tmp_path}/none.db", "games")

    assert not list(tmp_path.iterdir())


uuids = st.binary(min_size=16, max_size=16)


@given(keys=st.lists(uuids) | st.lists(st.none() | uuids | st.text(max_size=20)))
def test_many_ids_become_texts_at_once_as_each_one_does_by_itself(keys):
    expected = pa.array([None if key is None else id_text(key) for key in keys], pa.string())

    found = id_texts(keys)

    found.validate(full=True)
    assert found == expected
