"""The fold of a partition: groups, deliveries, and the dead letters that some are."""

import gc
import json
import pickle
import subprocess
import sys
import weakref
from collections import Counter
from contextlib import suppress

import pytest

from benchmarks.games import by_game, routed_batches
from eventstore import Operation, drive
from handlers import App, Context, Handler, Message, State, handles
from handlers.guard import guarded
from runtime.algorithms.choice import AlgorithmName
from runtime.batch_options import BatchOptions, TablePlace, VerifyOptions
from runtime.dead_letters import Selection, find_letters
from runtime.ledger.batch import BatchContext
from runtime.spark.verification import VerifyJob
from runtime.spark.worker import job as deliveries
from runtime.spark.worker.connection import open_table
from runtime.spark.worker.job import FoldJob, rare_collections
from runtime.versions.stream import summaries
from samples.shooting_range import app
from samples.shooting_range.handlers import FireAt, ShootingRangeData
from tests.support.logs import GAME, message_id
from tests.support.routed import routed, rows_of
from tests.unit.runtime import diary
from tests.unit.runtime.diary import DIARY, delivery, misbehave, write


def batch(*rows):
    """Give routed rows (message number, body) of one game as Spark gives them to a worker."""
    ids, bodies = [message_id(number) for number, _ in rows], [body for _, body in rows]
    return rows_of(
        "ShootingRange", [GAME] * len(rows), message_id=ids, type=["FireAt"] * len(rows), body=bodies
    )


def shot(number, position=7):
    return number, json.dumps({"game_id": GAME, "position": position})


def fold(folder, context, *rows, algorithm: AlgorithmName = "state-based"):
    job = FoldJob(app, f"sqlite:///{folder}/store.db", "games", context, BatchOptions(algorithm=algorithm))
    return [row for found in job.fold(batch(*rows)) for row in found.to_pylist()]


@pytest.fixture
def _short_groups(monkeypatch):
    monkeypatch.setattr(deliveries, "MAX_DELIVERIES", 3)


NO_FIELDS = [(number, "{}") for number in range(1, 4)]


@pytest.mark.usefixtures("_short_groups")
@pytest.mark.parametrize("algorithm", ["state-based", "outbox", "deduplication-store"])
@pytest.mark.parametrize(
    ("rows", "ends", "outputs"),
    [
        # more copies than a group holds give their outputs once
        ([shot(1)] * 20, {"processed": 1, "duplicate": 19}, 1),
        # ... and another message with the id, at the end of a group, changes nothing in that
        ([*[shot(1)] * 5, shot(1, 99), *[shot(1)] * 9], {"processed": 1, "duplicate": 13, "id_reused": 1}, 1),
        # a group of dead letters alone stops its stream too
        ([*NO_FIELDS, *map(shot, range(4, 9))], {"no_business_id": 3, "held_back": 5}, 0),
    ],
)
def test_groups_of_one_stream_end_as_one_would(tmp_path, algorithm, rows, ends, outputs):
    stops = BatchContext("night", on_error="continue" if outputs else "stop-stream")

    outcomes = fold(tmp_path, stops, *rows, algorithm=algorithm)

    assert Counter(row["reason"] or row["status"] for row in outcomes) == ends
    assert sum(len(row["outputs"]) for row in outcomes) == outputs


@pytest.mark.usefixtures("_short_groups")
def test_a_verification_counts_the_stream_once_and_gives_its_outputs_once(tmp_path):
    shots = [*[shot(1)] * 5, shot(2), shot(1, 99), *[shot(3)] * 5]
    outputs = [row["outputs"] for row in fold(tmp_path, BatchContext("night"), *shots) if row["outputs"]]
    job = VerifyJob(app, TablePlace(f"sqlite:///{tmp_path}/store.db", "games"), VerifyOptions(cascade=True))

    rows = [row for found in job.verify(batch(*shots)) for row in found.to_pylist()]

    assert {row["verdict"]: (row["deliveries"], row["streams"]) for row in rows if row["verdict"]} == {
        "match": (11, 1),
        "id_reused": (1, 1),
    }
    assert [output for row in rows for output in row["outputs"]] == [
        each for found in outputs for each in found
    ]
    assert len(outputs) == 3


@pytest.mark.usefixtures("_short_groups")
def test_a_verification_gives_the_first_version_that_differs_of_each_group_and_one_stream(tmp_path):
    fold(tmp_path, BatchContext("night"), *[shot(number) for number in range(1, 9)])
    job = VerifyJob(App(Deaf), TablePlace(f"sqlite:///{tmp_path}/store.db", "games"), VerifyOptions())

    shots = batch(*map(shot, range(8, 0, -1)))
    rows = [row for found in job.verify(shots) for row in found.to_pylist()]

    found = [(row["version"], row["deliveries"], row["streams"]) for row in rows]
    assert found == [(6, 3, 1), (3, 3, 0), (1, 2, 0)]
    assert {row["verdict"] for row in rows} == {"nondeterministic"}


class Deaf(Handler[ShootingRangeData], name="ShootingRange"):
    """Hears no shot."""

    @handles(by="game_id")
    def fire_at(self, state: ShootingRangeData, message: FireAt, context: Context) -> ShootingRangeData:
        return state


class Rang(Message):
    tower: str


class Rings(State):
    count: int = 0


class Bell(Handler[Rings]):
    @handles(by="tower")
    def rang(self, state: Rings, message: Rang, context: Context) -> Rings:
        return Rings(count=state.count + 1)


class Listener(Handler[Rings]):
    @handles(by="tower")
    def rang(self, state: Rings, message: Rang, context: Context) -> Rings:
        return Rings(count=state.count + 1)


tower = App(Bell, Listener)


def row(message_id, type_="Rang", **fields):
    return {"message_id": message_id, "type": type_, "body": '{"tower":"east"}', **fields}


@pytest.fixture
def ring(tmp_path):
    def fold_rows(*rows, types=None, **options):
        store, night = f"sqlite:///{tmp_path}/store.db", BatchContext("night")
        job = FoldJob(tower, store, "bells", night, BatchOptions(**options), types)
        return [found for outcomes in job.fold(routed(tower, rows)) for found in outcomes.to_pylist()]

    return fold_rows


@pytest.mark.parametrize("algorithm", ["state-based", "outbox", "deduplication-store"])
def test_what_takes_it_is_the_handler_that_is_named(ring, algorithm):
    outcomes = ring(row("a"), row("b", handler="Bell"), row("c", handler="Listener"), algorithm=algorithm)

    assert sorted((each["handler"], each["message_id"], each["status"]) for each in outcomes) == [
        ("Bell", "a", "processed"),
        ("Bell", "b", "processed"),
        ("Listener", "a", "processed"),
        ("Listener", "c", "processed"),
    ]


@pytest.mark.parametrize(
    ("sent", "reason", "error"),
    [
        (row("a", handler="Bel"), "unknown_handler", "There is no handler 'Bel'."),
        (row("a", handler=""), "unknown_handler", "There is no handler ''."),
        (row("a", "Rung", handler="Bel"), "unknown_handler", "There is no handler 'Bel'."),
        (row("a", "Rung", handler="Bell"), "unknown_type", "Bell does not handle Rung."),
        (row("a", "Rung"), "unknown_type", "No handler takes messages of type Rung."),
    ],
)
def test_what_nobody_takes_is_a_dead_letter_that_says_why(ring, sent, reason, error):
    (outcome,) = ring(sent)

    assert (outcome["status"], outcome["handler"]) == ("dead_letter", sent.get("handler"))
    assert (outcome["reason"], outcome["error"]) == (reason, error)


def test_a_verification_compares_it_with_the_version_of_that_handler(ring, tmp_path):
    ring(row("a"))
    job = VerifyJob(tower, TablePlace(f"sqlite:///{tmp_path}/store.db", "bells"), VerifyOptions())
    log = [row("a", handler="Bell"), row("a", handler="Bel"), row("a", "Rung", handler="Listener")]

    found = [each for batch in job.verify(routed(tower, log)) for each in batch.to_pylist()]

    assert {(each["handler"], each["verdict"], each["error"]) for each in found} == {
        ("Bell", "match", None),
        ("Bel", "unknown", "There is no handler 'Bel'."),
        ("Listener", "unknown", "Listener does not handle Rung."),
    }


def test_cycles_are_collected_less_often_inside_and_as_before_afterwards_and_after_an_error():
    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    try:
        with suppress(KeyError), rare_collections():
            cycle = _Cycle()
            gone = weakref.ref(cycle)
            del cycle
            kept: list[list[int]] = [[] for _ in range(2 * gc.get_threshold()[0])]
            raise KeyError
        assert (len(kept) > 1400, gone()) == (True, None)
        assert gc.get_threshold() == (700, 10, 10)
    finally:
        gc.set_threshold(*before)


class _Cycle:
    def __init__(self) -> None:
        self.itself = self


def test_deliveries_to_a_damaged_stream_are_dead_letters_and_all_others_are_handled(tmp_path):
    url = f"sqlite:///{tmp_path}/store.db"
    log = list(routed_batches(by_game(range(4), range(3))))
    list(FoldJob(app, url, "games", BatchContext("first")).fold(log))
    table = open_table(url, "games").table
    keys = [each.key for each in drive(_all(summaries(table)))]
    drive(table.transact(keys[0], [Operation.merge("SS-HEAD", {"StateVersions": "many"})]))

    found = [
        row for batch in FoldJob(app, url, "games", BatchContext("b")).fold(log) for row in batch.to_pylist()
    ]

    damaged = [row for row in found if row["reason"] == "stream_damaged"]
    assert len(damaged) == 3
    assert {row["business_id"] for row in damaged} == {keys[0].partition("-")[2]}
    assert all("row SS-HEAD" in row["error"] and "table games" in row["error"] for row in damaged)
    assert {row["status"] for row in found if row not in damaged} == {"duplicate"}
    drive(table.transact(keys[0], [Operation.delete("SS-HEAD")]))
    assert drive(_all(find_letters(table, Selection()))) == []


async def _all(found):
    return [each async for each in found]


LONG = "d" * 1025
DELIVERIES = [
    write("a"),
    delivery("no-line", "Write", {"diary": DIARY}),
    delivery("no-json", "Write", "{"),
    delivery("another", "Write", {"diary": "d-2", "line": "b"}),
    misbehave("fail", "failing"),
    misbehave("draw from outside", "drawing"),
    misbehave("fill the diary", "filling"),
    write("of another line", "a"),
    write("b"),
    write("a"),
]


def fold_odd(folder, algorithm: AlgorithmName, deliveries, business_id=DIARY, **options):
    """Return what came of deliveries for one diary: the id, status and reason, and how many outputs."""
    columns = {name: [getattr(each, name) for each in deliveries] for name in ("message_id", "type", "body")}
    rows = rows_of("Diary", [business_id] * len(deliveries), **columns)
    batch = BatchContext("night", **options)
    url = f"sqlite:///{folder}/{algorithm}.db"
    job = FoldJob(guarded(diary.app), url, "diaries", batch, BatchOptions(algorithm=algorithm))
    found = [row for outcomes in job.fold(rows) for row in outcomes.to_pylist()]
    return [(row["message_id"], row["status"], row["reason"], len(row["outputs"])) for row in found]


@pytest.mark.parametrize("algorithm", ["outbox", "deduplication-store"])
@pytest.mark.parametrize("on_error", ["continue", "stop-stream"])
def test_they_end_as_they_do_state_based(tmp_path, algorithm, on_error):
    expected = fold_odd(tmp_path, "state-based", DELIVERIES, on_error=on_error)
    assert [each[2] for each in expected[1:4]] == ["invalid_body", "invalid_body", "business_id_mismatch"]

    assert fold_odd(tmp_path, algorithm, DELIVERIES, on_error=on_error) == expected


@pytest.mark.parametrize("algorithm", ["outbox", "deduplication-store", "tokens"])
def test_a_key_that_no_table_can_hold_is_a_dead_letter(tmp_path, algorithm):
    (outcome,) = fold_odd(tmp_path, algorithm, [delivery("m", "Write", {"diary": LONG, "line": "a"})], LONG)

    assert outcome[1:3] == ("dead_letter", "key_too_long")


NOT_NEEDED = {"aiohttp", "asyncio", "azure", "hypothesis", "rich", "tenacity", "typer"}
OF_THE_DRIVER = {"batch", "logs", "redrives", "rounds", "sources", "streaming", "truncation", "verification"}
WORKER = """
import json, pickle, sys
import pyspark.worker
before = set(sys.modules)
fold = pickle.loads(bytes.fromhex(sys.argv[1])).fold
outcomes = list(fold([]))
print(json.dumps(sorted(set(sys.modules) - before)))
"""


def imported(store: str) -> set[str]:
    """Return the modules that a worker imports to fold a partition without messages."""
    job = pickle.dumps(FoldJob(app, store, "games", BatchContext("night"))).hex()
    done = subprocess.run([sys.executable, "-c", WORKER, job], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


def test_on_a_file_it_imports_neither_an_event_loop_nor_what_drivers_and_other_stores_need(tmp_path):
    found = imported(f"sqlite:///{tmp_path}/store.db")

    assert {"runtime.spark.worker.job", "handlers", "eventstore", "pydantic", "sqlite3", "samples"} <= found
    assert {name.partition(".")[0] for name in found} & NOT_NEEDED == set()
    assert found & {f"runtime.spark.{name}" for name in OF_THE_DRIVER} == set()
