"""Batches: every message takes effect once, outcomes never change, and what cannot begin is refused."""

import json
import shutil
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from unittest.mock import patch

import pytest

from eventstore import InterceptedTable, connect, drive
from eventstore.backends.azure import account_of
from handlers import App, Context, Handler, Message, State, handles
from handlers.draws import Seed
from runtime.archives.tables import export_table, import_table
from runtime.batch_options import BatchOptions, TablePlace
from runtime.clock import system_clock
from runtime.errors import BatchFailedError, BatchHeldBackError, BatchRefusedError, UsageError
from runtime.ledger.ledger import Ledger
from runtime.spark import verify
from runtime.spark.batch import Batch
from runtime.spark.commit import BatchFolders
from runtime.spark.worker.connection import open_table
from tests.integration.spark.conftest import NIGHT, Place
from tests.support.faults import CountCalls
from tests.support.logs import GAME, fire, generated, message_id, row, start, write_lines
from tests.support.outcomes import (
    Left,
    all_outcomes,
    by_status,
    entities,
    heads,
    left,
    published,
    statuses,
    without_tokens,
)
from tests.unit.handlers import onlooker


@pytest.mark.connect
@pytest.mark.parametrize(
    "any_place", ["azurite", pytest.param("sqlite", marks=pytest.mark.thorough)], indirect=True
)
def test_every_message_takes_effect_once_and_a_second_batch_changes_nothing(any_place):
    # Given a log of 40 messages in 4 games, a quarter of them twice, in no order
    log = generated(any_place.folder / "log.jsonl", games=4, messages=40, duplicates=0.25, shuffle=True)

    # When a batch runs with cascade
    first = any_place.run(log, cascade=True)

    # Then each message is processed once, and each shot is counted on the leader board
    assert by_status(first) == {
        ("ShootingRange", "processed"): 40,
        ("ShootingRange", "duplicate"): 10,
        ("LeaderBoard", "processed"): 28,
    }
    outputs = published(first)
    before = heads(any_place.store, any_place.table)
    scores = [json.loads(state) for key, (_, state) in before.items() if key.startswith("LeaderBoard-")]
    hits = sum(score["number_of_hits"] for score in scores)
    assert hits == sum(1 for output in outputs if output[1] == "Hit")
    assert hits + sum(score["number_of_misses"] for score in scores) == 28

    # When the same log runs as a new batch
    second = any_place.run(log, cascade=True)

    # Then all are duplicates, the outputs are the same byte for byte, and no state changed
    assert by_status(second) == {("ShootingRange", "duplicate"): 50, ("LeaderBoard", "duplicate"): 28}
    assert published(second) == outputs
    assert heads(any_place.store, any_place.table) == before
    # And each names the batch that made its version
    makers = second.select("made_by", "made_by_number").distinct().collect()
    assert [tuple(row) for row in makers] == [(any_place.batches()[-1].batch_id, 1)]


@pytest.mark.connect
def test_a_stream_costs_one_query_and_one_transaction_at_most(any_place):
    # Given a log in which each of 20 streams has 5 messages
    log = generated(any_place.folder / "log.jsonl", games=20, messages=100)
    counter = CountCalls(str(any_place.folder))

    # When a batch runs
    any_place.run(log, wrap=counter)

    # Then each stream was read by one query and written by one transaction, on SQLite many together
    queries, together, transactions, commits, others = (
        sum(map(counter.calls, names))
        for names in (["query"], ["query_each"], ["transact"], ["transact_each"], ["get", "scan"])
    )
    assert (queries, together, others) == (transactions, commits, 0)
    assert 0 < together < queries + together < 20 if any_place.store.startswith("sqlite") else queries == 20


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("algorithm", "states", "other"),
    [
        ("outbox", "sqlite", None),
        ("deduplication-store", "azurite", "sqlite"),
        ("tokens", "sqlite", "azurite"),
    ],
)
def test_it_gives_what_a_state_based_batch_gives_and_the_log_again_gives_nothing(
    place, night, request, algorithm, states, other
):
    # Given a table of states, and maybe one of ids or tokens in another account
    account = account_of(request.getfixturevalue("azurite_url"))
    secret = f"AccountName={account.name};AccountKey={account.key};TableEndpoint={account.endpoint}"
    stores = {"sqlite": place.store, "azurite": secret}
    place.store = stores[states]
    elsewhere = TablePlace(stores[other], f"{place.table}other") if other else None
    log = place.issue(night.log, place=elsewhere).out if algorithm == "tokens" else night.log
    options = {
        "algorithm": algorithm,
        "deduplication_store": elsewhere if algorithm == "deduplication-store" else None,
        "token_store": elsewhere if algorithm == "tokens" else None,
        "cascade": True,
        "clock": NIGHT,
        "partitions": 2,
    }

    # When a batch runs over the log
    outcomes = place.run(log, batch_id="night", **options)

    # Then it gives what a state-based one gives, and nothing is left
    assert without_tokens(outcomes) == night.outcomes
    assert entities(place.store, place.table) == night.states
    where = (elsewhere.store, elsewhere.table) if elsewhere else None
    assert left(place.store, place.table, where) == Left({"ShootingRange": 60, "LeaderBoard": 45}, 0, 0)

    # ... and the account's key stands nowhere
    (record,) = place.batches()
    assert record.algorithm.startswith(algorithm)
    logs = [file.read_text() for file in place.folder.parent.glob("spark*/spark.log")]
    shown = [repr(record), repr(BatchOptions(**options)), *logs]
    assert logs
    assert not any(account.key in text for text in shown)

    # ... and another one over the same log gives duplicates without outputs, and changes nothing
    again = place.run(log, batch_id="again", **options)
    assert by_status(again) == {("ShootingRange", "duplicate"): 72}
    assert again.selectExpr("sum(size(outputs))").first()[0] == 0
    assert entities(place.store, place.table) == night.states
    assert left(place.store, place.table, where) == Left({"ShootingRange": 60, "LeaderBoard": 45}, 0, 0)


def test_no_update_is_lost(any_place):
    # Given two logs for the same few games, which share half of their messages
    logs, shared = overlapping_logs(any_place.folder)

    # When they run at the same time
    outcomes = run_at_once(any_place, logs)

    # Then each message was processed by one of them, and was a duplicate in the other
    found = Counter((row.message_id, row.status) for each in outcomes for row in each.collect())
    assert set(found.values()) == {1}
    ids = {id_ for id_, _ in found}
    assert {id_ for id_, status in found if status == "processed"} == ids
    assert {id_ for id_, status in found if status == "duplicate"} == shared

    # ... with the same outputs in both, and a version for each
    both = Counter(output for each in outcomes for output in published(each))
    assert set(Counter(output[0] for output in both).values()) == {1}
    assert (
        sum(versions for versions, _ in heads(any_place.store, any_place.table).values()) == len(ids) == 300
    )


def overlapping_logs(folder):
    """Write two logs for the same few games, and return them with the ids of the messages that are in both."""
    first, more = folder / "1.jsonl", folder / "more.jsonl"
    generated(first, games=4, messages=200, shuffle=True)
    generated(more, games=4, messages=100, begin=datetime(2026, 1, 2, tzinfo=UTC))
    both = first.read_text().splitlines()[:100]
    second = write_lines(folder / "2.jsonl", [*both, *more.read_text().splitlines()])
    return [str(first), second], {json.loads(line)["message_id"] for line in both}


def run_at_once(place, logs, **options):
    """Run a batch over each log, all at the same time, and return their outcomes."""
    with ThreadPoolExecutor(len(logs)) as threads:
        running = [
            threads.submit(place.run, log, batch_id=name, **options)
            for name, log in zip("ab", logs, strict=True)
        ]
        return [each.result() for each in running]


def test_what_looks_is_a_dead_letter_and_what_does_not_is_handled(place):
    # Given a log in which each second message makes the handler look at the clock or the environment
    hows = ["captured", "now", "dates", "environ", "context", "catch uuid4"]
    rows = [row(at, "Look", {"house": f"h{at % 3}", "how": how}) for at, how in enumerate(hows)]

    # When a batch runs with guard
    outcomes = place.run(write_lines(place.folder / "log.jsonl", rows), app=onlooker.app, guard=True)

    # Then those are dead letters that say what to use instead, and the others are handled
    found = {row.message_id: row.error for row in outcomes.where("reason = 'handler_error'").collect()}
    told = ["use context.now.", "context.capture(", "use context.new_guid()."]
    assert [said in found[message_id(at)] for at, said in zip((1, 3, 5), told, strict=True)] == [True] * 3
    assert by_status(outcomes)["Onlooker", "processed"] == len(found) == 3


class Drawn(Message):
    raffle: str


class Won(Message):
    number: int


class Raffle(Handler[State]):
    @handles(by="raffle")
    def draw(self, state: State, message: Drawn, context: Context) -> State:
        context.publish(Won(number=context.random.randrange(10**12)))
        return state


RAFFLE = App(Raffle)


async def _moved(place: Place, folder: Path) -> None:
    """Move the table into a store of its own by an export and an import."""
    old = await connect(place.store).table(place.table)
    manifest = await export_table(old, place.table, folder / "export", lambda *_: None)
    new = await connect(f"sqlite:///{folder}/copy.db").table(place.table)
    await import_table(new, place.table, folder / "export", manifest, lambda *_: None)


@pytest.mark.thorough
def test_the_secret_goes_with_the_table(place, tmp_path):
    log = write_lines(tmp_path / "log.jsonl", [row(n, "Drawn", {"raffle": f"r{n}"}) for n in range(3)])
    keyed = replace(place, app=RAFFLE)
    first = published(keyed.run(log, draws="keyed"))
    drive(_moved(place, tmp_path))
    copy = replace(keyed, store=f"sqlite:///{tmp_path}/copy.db")

    again = published(copy.run(log, batch_id="again"))
    foreseen = {Seed(message_id(n), "Raffle", f"r{n}").guid_text("message", 0) for n in range(3)}
    verified = verify(place.spark, log, RAFFLE, store=place.store, table=place.table)

    assert again == first
    assert len(first) == 3
    assert not {each[0] for each in first} & foreseen
    assert verified.is_clean
    assert {str(count.verdict) for count in verified.counts} == {"match"}
    with pytest.raises(UsageError, match="created with keyed draws"):
        keyed.run(log, draws="plain")
    with pytest.raises(UsageError, match="belongs to the app with the handlers Raffle"):
        place.run(log)


def test_a_secret_is_not_in_what_a_job_looks_like(place):
    job, named = (
        Batch(place.spark, place.app, "sqlite:///secret", "games", "out"),
        TablePlace("sqlite:///secret", "games"),
    )
    assert not [each for each in (job, named, named.for_workers()) if "secret" in repr(each)]


@pytest.mark.thorough
def test_other_types_are_dead_letters_and_change_nothing(place, tmp_path):
    hit = {"game_id": GAME, "position": 40}
    expected = [
        (start(1, 40), "processed"),
        (fire(2, 40), "processed"),
        (row(3, "Hit", hit), "type_not_allowed"),
        (row(4, "Hit", hit, handler="LeaderBoard"), "type_not_allowed"),
        (row(5, "Surprise", hit), "type_not_allowed"),
        (row(6, "FireAt", hit, handler="Nobody"), "unknown_handler"),
        (row(7, "", hit), "invalid_envelope"),
    ]
    log = write_lines(tmp_path / "log.jsonl", [sent for sent, _ in expected])

    outcomes = place.run(log, types=["StartNewRound", "FireAt"], cascade=True, batch_id="b").collect()

    found = {each.message_id: each.reason or each.status for each in outcomes}
    assert [found.pop(sent["message_id"]) for sent, _ in expected] == [end for _, end in expected]
    assert set(found.values()) == {"processed"}
    (named,) = [each for each in outcomes if each.message_id == message_id(4)]
    assert json.loads(named.delivery)["handler"] == "LeaderBoard"
    with pytest.raises(UsageError, match="other input"):
        place.run(log, types=["FireAt"], cascade=True, batch_id="b")
    with pytest.raises(UsageError, match=r"not .*Fire'"):
        place.run(log, types=["Fire"])


def test_running_it_again_returns_what_was_published(place):
    log = generated(place.folder / "log.jsonl", games=5, messages=50)
    outcomes = place.run(log, batch_id="night", cascade=True)
    copied = shutil.copy(log, place.folder / "copied.jsonl")

    for each in (log, copied):
        again = place.run(each, batch_id="night", cascade=True, wrap=CountCalls(str(place.folder)))

        # Nothing is handled, and the outcomes are those of the first time
        assert all_outcomes(again) == all_outcomes(outcomes)
        assert not list(place.folder.glob("*.calls"))


@pytest.mark.thorough
def test_an_id_that_was_pruned_needs_another_folder_and_gives_the_outputs_as_duplicates(place):
    # Given a batch whose row the ledger has forgotten
    log = write_lines(place.folder / "log.jsonl", [start(1, 5), fire(2, 5)])
    first = place.run(log, batch_id="night")
    given = sorted(Path(place.out).rglob("*"))
    connection = open_table(place.store, place.table)
    assert connection.run(Ledger(connection.table, system_clock).prune(system_clock() + 1)) == 1

    # When its id is used again, then its folder is refused, and nothing is written
    with pytest.raises(BatchRefusedError, match="or was pruned from this ledger: choose another --out"):
        place.run(log, batch_id="night")
    assert sorted(Path(place.out).rglob("*")) == given
    assert connection.run(Ledger(connection.table, system_clock).batches(9)) == []

    # And in another folder it is a new batch, to which all messages are duplicates
    again = place.run(log, batch_id="night", out=str(place.folder / "elsewhere"))
    assert {row.status for row in again.collect()} == {"duplicate"}
    assert published(again) == published(first)


def test_a_batch_that_takes_another_folder_leaves_nothing_in_the_one_before(place):
    # Given a batch that is held back with its outcomes in place, and a driver that dies after it has revoked them
    log = write_lines(place.folder / "log.jsonl", [start(1, 5), "this is no message"])
    with pytest.raises(BatchHeldBackError):
        place.run(log, batch_id="night", max_dead_letters="0")
    elsewhere = str(place.folder / "elsewhere")
    with (
        patch.object(BatchFolders, "remove", side_effect=KeyboardInterrupt),
        pytest.raises(KeyboardInterrupt),
    ):
        place.run(log, batch_id="night", out=elsewhere)

    # When it goes on in another folder, then only that one has outcomes
    assert place.run(log, batch_id="night", out=elsewhere).count() == 2
    assert list(Path(place.out).glob("batch_id=*")) == list(Path(place.out).glob("_staging/*")) == []


def test_a_batch_that_stops_leaves_nothing_in_place_and_no_staging_once_it_is_resumed(place):
    log = write_lines(place.folder / "log.jsonl", [start(1, 5), fire(2, 5)])
    batch = Path(place.out) / "batch_id=night"

    # Given a batch that was stopped with its outcomes staged
    with pytest.raises(KeyboardInterrupt):
        place.run(log, batch_id="night", step=stop)
    assert not batch.exists()
    assert list((Path(place.out) / "_staging").iterdir())

    # When it is run again, then its outcomes are in place, and what was staged is gone
    assert by_status(place.run(log, batch_id="night")) == {("ShootingRange", "processed"): 2}
    assert batch.is_dir()
    assert not (Path(place.out) / "_staging").exists()


def test_what_was_stored_is_made_durable_before_its_outcomes_are_in_place(place):
    log = write_lines(place.folder / "log.jsonl", [start(1, 5), fire(2, 5)])
    connection = open_table(place.store, place.table)
    in_place = Path(place.out) / "batch_id=night" / "round=0"
    # ... with staging of a batch with a longer name, which is to be left alone
    other = Path(place.out) / "_staging" / f"night-round-2-round-0-{'0' * 32}"
    other.mkdir(parents=True)
    seen: list[tuple[str, bool]] = []

    def before(call, *_):
        if getattr(call, "name", call) == "barrier":
            seen.append(("barrier", in_place.exists()))

    connection.table = InterceptedTable(connection.table, before)
    place.run(log, batch_id="night", step=lambda step: seen.append((step, in_place.exists())))

    # The barrier stands between the appends and the move into place
    committing = seen.index(("Round 0: committing outcomes", False))
    assert seen[committing + 1] == ("barrier", False)
    assert ("Round 0: recording in the ledger", True) in seen
    assert other.is_dir()


class Said(Message):
    text: str


class Told(Message):
    key: str
    file: str


class Nothing(State):
    pass


class Untrue(Handler[Nothing]):
    """Publishes what stands in a file: not what a handler may do."""

    @handles(by="key")
    def told(self, state: Nothing, message: Told, context: Context) -> Nothing:
        context.publish(Said(text=Path(message.file).read_text()))
        return state


app = App(Untrue)


def stop(step: str) -> None:
    if step == "Round 0: committing outcomes":
        raise KeyboardInterrupt


@pytest.fixture
def told(place):
    """Give a log, and the file whose content its handler publishes."""
    place.app = app
    file = place.folder / "truth"
    file.write_text("yes")
    log = write_lines(place.folder / "log.jsonl", [row(1, "Told", {"key": "k", "file": str(file)})])
    return log, file


@pytest.mark.thorough
def test_what_was_never_published_and_differs_fails_batches_until_it_is_abandoned(place, told):
    # Given a batch that appended and then stopped, after which its handler says something else
    log, file = told
    with pytest.raises(KeyboardInterrupt):
        place.run(log, batch_id="night", step=stop)
    file.write_text("no")

    # Then neither it nor another one can run
    for batch_id in ("night", "morning"):
        with pytest.raises(BatchFailedError, match="batch night, whose outputs were never published"):
            place.run(log, batch_id=batch_id)

    # ... until it is abandoned, and the message is a dead letter
    async def abandon():
        async with connect(place.store) as store:
            await Ledger(await store.table(place.table), system_clock).abandon("night")

    drive(abandon())
    assert list(statuses(place.run(log, batch_id="morning")).values()) == [["nondeterministic"]]
    with pytest.raises(BatchRefusedError, match="abandoned"):
        place.run(log, batch_id="night")
