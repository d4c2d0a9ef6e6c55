"""The settings of a table, and the limit of dead letters of a batch."""

import pickle
from typing import get_args

import pytest

from eventstore import Operation, drive
from handlers import App
from handlers.guard import guarded
from runtime import Processor, TableSettings, UsageError
from runtime.algorithms.choice import AlgorithmName
from runtime.errors import StoredDataError
from runtime.ledger.batch import DeadLetterLimit
from runtime.ledger.ledger import Ledger
from runtime.ledger.settings import KEY_BYTES, LEDGER, OF_TABLE, TableDemands, TableOwner
from runtime.versions.properties import error_location
from tests.unit.runtime import diary
from tests.unit.runtime.accidents import disturbed
from tests.unit.runtime.diary import Diary, write
from tests.unit.runtime.patience import PATIENCE
from tests.unit.runtime.tables import memory_table, rows
from tests.unit.runtime.worker import ToldClock

# The settings of a table: one app owns it, and whether its draws are keyed is chosen once.


class Diaries(Diary):
    """The same handler under another name."""


NAMED = App(*diary.app.handler_types, name="diaries")


def owner(*handlers, name=None):
    return TableOwner(name, frozenset(handlers))


def begin(table, claim, batch_id="b-1"):
    ledger = Ledger(table, ToldClock(), PATIENCE)
    drive(ledger.check_table("state-based", claim))
    return drive(ledger.begin(batch_id, "a log", "/out", "state-based", claim))


def settings_of(table):
    return drive(TableSettings.of(table))


async def ignore(_): ...


def process(table, algorithm="state-based"):
    processor = Processor(diary.app, table, ignore, clock=ToldClock(), algorithm=algorithm)
    (outcome,) = drive(processor.process(drive(processor.issue(write("a")))))
    return outcome


@pytest.mark.parametrize(
    ("before", "app", "after"),
    [
        (owner("A", "B"), owner("A", "B"), owner("A", "B")),
        (owner("A"), owner("A", "B"), owner("A", "B")),
        (owner("A", "B"), owner("B"), owner("A", "B")),
        (owner("A"), owner("A", name="shop"), owner("A", name="shop")),
        (owner("A", name="shop"), owner("C", name="shop"), owner("A", "C", name="shop")),
        (None, owner("A"), owner("A")),
    ],
)
def test_an_app_is_known_again_by_its_name_or_its_handlers(table, before, app, after):
    begin(table, before and TableDemands(before))
    assert settings_of(table).owner == before

    begin(table, TableDemands(app), "b-2")

    assert settings_of(table).owner == after


@pytest.mark.parametrize(
    ("before", "app"),
    [
        (owner("A"), owner("B")),
        (owner("A", "B"), owner("B", "C")),
        (owner("A", name="shop"), owner("A", name="bank")),
        (owner("A", name="shop"), owner("A")),
        (owner("A"), owner("B", name="shop")),
    ],
)
def test_another_app_is_refused_and_takes_the_table_over_only_when_asked_to(table, before, app):
    begin(table, TableDemands(before))
    unchanged = rows(table)

    with pytest.raises(UsageError, match=r"belongs to the app .*--adopt"):
        begin(table, TableDemands(app), "b-2")
    with pytest.raises(UsageError, match="belongs to the app"):
        process(table)  # of single messages
    assert rows(table) == unchanged

    begin(table, TableDemands(app, adopt=True), "b-2")
    assert settings_of(table).owner == app


def test_draws_are_keyed_once_and_for_all(table):
    begin(table, TableDemands(owner("A"), "keyed"))
    key = settings_of(table).draw_key

    begin(table, TableDemands(owner("A"), "keyed"), "b-2")
    begin(table, TableDemands(owner("B"), adopt=True), "b-3")
    with pytest.raises(UsageError, match="created with keyed draws"):
        begin(table, TableDemands(owner("B"), "plain"), "b-4")

    assert len(key or b"") == KEY_BYTES
    assert settings_of(table).draw_key == key


@pytest.mark.parametrize("use", [lambda table: begin(table, TableDemands(TableOwner.of(diary.app))), process])
def test_draws_of_a_table_in_use_are_not_keyed(table, use):
    use(table)

    with pytest.raises(UsageError, match="before a table handles its first message"):
        begin(table, TableDemands(TableOwner.of(diary.app), "keyed"), "b-2")
    with pytest.raises(UsageError, match="before a table handles its first message"):
        claimed(table, draws="keyed")
    assert settings_of(table).draw_key is None


@pytest.mark.parametrize("algorithm", get_args(AlgorithmName))
def test_what_a_sender_can_foresee_is_not_what_a_keyed_table_draws_and_a_duplicate_draws_the_same(algorithm):
    tables = [memory_table() for _ in range(4)]
    for table in tables[2:]:
        begin(table, TableDemands(TableOwner.of(diary.app), "keyed"))

    drawn = [process(table, algorithm).outputs for table in tables]

    assert drawn[0] == drawn[1]
    assert len({output.message_id for (output,) in drawn}) == 3
    assert len({output.body for (output,) in drawn}) == 3
    if algorithm == "state-based":
        again = process(tables[3])
        assert (again.status, again.outputs) == ("duplicate", drawn[3])


@pytest.mark.parametrize("made", [lambda app: app, guarded], ids=["plain", "guarded"])
def test_name_and_secret_of_an_app_survive_guarding_and_pickling_and_are_not_shown(made):
    key = b"\1" * KEY_BYTES
    app = made(NAMED.keyed(key))

    copied = pickle.loads(pickle.dumps(app))

    assert (copied.name, copied.draw_key) == ("diaries", key)
    assert {definition.draw_key for definition in copied.handlers.values()} == {key}
    assert NAMED.draw_key is None
    assert repr(key) not in repr((app, TableSettings(draw_key=key)))


@pytest.mark.parametrize("damage", [{"DrawKey": b"short"}, {"DrawKey": "text"}, {"Handlers": 7}])
def test_damaged_settings_are_told(table, damage):
    begin(table, TableDemands(owner("A"), "keyed"))
    drive(table.transact(LEDGER, [Operation.merge(OF_TABLE, damage)]))

    with pytest.raises(StoredDataError, match="settings"), error_location(table):
        settings_of(table)


def claimed(table, app=diary.app, **asked):
    return drive(TableSettings.claim(table, app, retries=PATIENCE, **asked))


def test_a_consumer_makes_a_table_its_own_and_chooses_keyed_draws_if_it_is_new(table):
    settings = claimed(table, draws="keyed")

    assert settings == settings_of(table) == claimed(table)  # a claim that changes nothing writes nothing
    assert settings.owner == TableOwner.of(diary.app)
    with pytest.raises(UsageError, match="belongs to"):
        claimed(table, App(Diaries))
    with pytest.raises(UsageError, match="belongs to"):
        begin(table, TableDemands(owner("Others")))
    with pytest.raises(UsageError, match="which cannot change"):
        claimed(table, draws="plain")

    # Whoever works on the table later draws with its secret, too
    processor = Processor(diary.app, table, ignore, clock=ToldClock(), settings=settings)
    (keyed,) = drive(processor.process(write("a")))
    assert keyed.outputs == process(table).outputs
    assert keyed.outputs[0].body != process(memory_table()).outputs[0].body
    assert claimed(table, App(Diaries), adopt=True).owner == owner("Diaries")


def test_two_consumers_that_claim_at_once_have_one_secret(table):
    rival: list[TableSettings] = []

    async def claim() -> None:
        rival.append(await TableSettings.claim(table, diary.app, draws="keyed"))

    assert claimed(disturbed(table, claim), draws="keyed") == rival[0]


COUNTS = {"processed": 180, "duplicate": 15, "too_late": 3, "dead_letter": 2, "outputs": 1000}


@pytest.mark.parametrize(
    ("text", "is_exceeded"),
    [("0", True), ("1", True), ("2", False), ("0%", True), ("0.99%", True), ("1%", False), ("100%", False)],
)
def test_a_limit_of_dead_letters_is_exceeded_by_more_than_its_number_or_share(text, is_exceeded):
    assert DeadLetterLimit.parse(text).is_exceeded(COUNTS) is is_exceeded
    assert not DeadLetterLimit.parse(text).is_exceeded({})


@pytest.mark.parametrize("text", ["", "-1", "1.5", "100.1%", "%", "5 percent"])
def test_a_text_that_is_no_limit_of_dead_letters_is_refused(text):
    with pytest.raises(UsageError, match="is not a limit of dead letters"):
        DeadLetterLimit.parse(text)
