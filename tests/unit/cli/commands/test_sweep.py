"""`consistent sweep` and `consistent evict`, and `stats` of what they clean up."""

import asyncio
import re
from pathlib import Path

import pytest

from eventstore import connect, drive
from runtime import Envelope, Processor
from runtime.ledger.ledger import Ledger
from samples.shooting_range import app
from tests.support.logs import fire, start
from tests.unit.cli.stores import NOW, TABLE
from tests.unit.runtime.documents.letters_desk import Office, ask

ON_STORE = ["--store", "sqlite:///store.db", "--table", TABLE]


IDS_ELSEWHERE = ["--deduplication-store", "sqlite:///other.db", "--deduplication-table", "seen"]


TOKENS_ELSEWHERE = ["--token-store", "sqlite:///other.db", "--token-table", "seen"]


EVICT = ["evict", "--app", "samples.shooting_range:app", *ON_STORE]


BY_STORE = [*EVICT, "--algorithm", "deduplication-store"]


AT_ONCE = ["--older-than", "0s"]


async def _play(folder, algorithm, batch_algorithm, *, elsewhere: bool, fails: bool) -> None:
    async with (
        connect(f"sqlite:///{folder}/store.db") as store,
        connect(f"sqlite:///{folder}/other.db") as other,
    ):
        table = await store.table(TABLE)
        seen = await other.table("seen") if elsewhere else None
        if batch_algorithm:
            await Ledger(table, NOW).begin("night", "a log", "out", batch_algorithm)

        async def publish(_):
            if fails:
                raise ConnectionError("nobody listens")

        processor = Processor(
            app, table, publish, clock=NOW, algorithm=algorithm,
            deduplication_store=seen if algorithm == "deduplication-store" else None,
            token_store=seen if algorithm == "tokens" else None,
        )  # fmt: skip
        for row in (start(1, 40), fire(2, 40)):
            message = Envelope.of(row["message_id"], row["type"], row["body"])
            await processor.process(await processor.issue(message))


@pytest.fixture
def play(tmp_path):
    """Play a game of two messages on the table."""

    def played(algorithm, batch_algorithm=None, *, elsewhere=False, fails=False):
        drive(_play(tmp_path, algorithm, batch_algorithm, elsewhere=elsewhere, fails=fails))

    return played


def test_stats_count_what_is_there_and_what_is_unfinished(consistent, play):
    with pytest.raises(ConnectionError):
        play("tokens", fails=True)

    document = consistent("stats", *ON_STORE, "--quick", "--json").document

    assert document == {
        "handlers": [
            {
                "handler": "ShootingRange",
                "algorithm": "tokens",
                "objects": 1,
                "versions": 2,
                "kept": 1,
                "unfinished": 1,
                "letters": 0,
                "horizon": None,
            }
        ],
        "live_tokens": 2,
    }
    said = consistent("stats", *ON_STORE, "--quick")
    assert ["ShootingRange", "tokens", "1", "2", "1", "1", "0", "-"] in [
        line.split() for line in said.out.splitlines()
    ]
    assert "Live tokens: 2" in said.out


def test_stats_of_a_state_based_table(consistent, store):
    document = consistent("stats", *ON_STORE, "--json").document

    found = [(each["handler"], each["versions"], each["kept"]) for each in document["handlers"]]
    assert found == [("LeaderBoard", 2, 2), ("ShootingRange", 4, 4)]
    assert document["live_tokens"] == 0
    assert {each["oldest"] for each in document["handlers"]} == {"2026-03-01T12:00:00Z"}
    assert [each["rows"] for each in document["handlers"]] == [1, 2]
    assert document["others"] == {"rows": 0, "bytes": 0}
    assert "Beside these: 0 rows of the ledger" in consistent("stats", *ON_STORE).out


def test_stats_of_a_table_that_holds_nothing(consistent, tmp_path):
    async def make():
        async with connect(f"sqlite:///{tmp_path}/store.db") as opened:
            await opened.table(TABLE)

    drive(make())

    assert consistent("stats", *ON_STORE).out == "The table games holds no business objects and no tokens.\n"


def test_stats_do_not_count_tokens_where_they_are_not(consistent, play, tmp_path):
    play("tokens", f"tokens in seen of sqlite:///{tmp_path}/other.db", elsewhere=True)

    said = consistent("stats", *ON_STORE)

    assert (said.code, said.out) == (1, "")
    assert "say with --token-store and --token-table where the tokens are" in said.err
    assert consistent("stats", *ON_STORE, *TOKENS_ELSEWHERE, "--json").document["live_tokens"] == 1


@pytest.mark.parametrize(
    ("algorithm", "elsewhere"),
    [("outbox", []), ("deduplication-store", []), ("deduplication-store", IDS_ELSEWHERE)],
)
def test_evict_forgets_and_a_dry_run_says_what_it_would(consistent, play, algorithm, elsewhere):
    play(algorithm, elsewhere=bool(elsewhere))
    evict = [*EVICT, "--algorithm", algorithm, *elsewhere]

    assert consistent(*evict, *AT_ONCE, "--dry-run").out.startswith("2 messages would be forgotten. A copy")
    assert consistent(*evict, "--older-than", "9999w").out.startswith("0 messages are forgotten.")
    assert consistent(*evict, *AT_ONCE, "--json").document == {
        "dry_run": False,
        "older_than_seconds": 0,
        "forgotten": 2,
    }
    assert consistent(*evict, *AT_ONCE, "--dry-run").out.startswith("0 messages would be forgotten.")


@pytest.mark.parametrize(
    ("begun_with", "asked_for"),
    [("outbox", "deduplication-store"), ("deduplication-store in a of b", "deduplication-store")],
)
def test_evict_says_so_when_the_ids_are_not_where_it_looks(consistent, play, begun_with, asked_for):
    play(begun_with.partition(" ")[0], begun_with)

    said = consistent(*EVICT, "--algorithm", asked_for, *AT_ONCE)

    assert (said.code, said.out) == (1, "")
    assert f"The table was processed with the algorithm {begun_with}" in said.err
    assert said.err.count("\n") == 1


def test_a_store_that_is_named_by_its_whole_path_is_the_same(consistent, play, tmp_path):
    where = f"deduplication-store in seen of sqlite:///{tmp_path}/other.db"
    play("deduplication-store", where, elsewhere=True)

    said = consistent(*EVICT, "--algorithm", "deduplication-store", *AT_ONCE, *IDS_ELSEWHERE)

    assert said.out.startswith("2 messages are forgotten.")


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["stats", "--store", "sqlite:///other.db", "--table", TABLE], 1, "There is no store at"),
        (["stats", "--store", "sqlite:///store.db", "--table", "others"], 1, "There is no table others"),
        (["stats", *ON_STORE, "--token-table", "others"], 1, "There is no table others"),
        ([*EVICT, *AT_ONCE], 2, "--algorithm"),
        ([*EVICT, *AT_ONCE, "--algorithm", "tokens"], 2, "'outbox'"),
        ([*EVICT, "--algorithm", "outbox"], 2, "--older-than"),
        ([*EVICT, "--algorithm", "outbox", *AT_ONCE, "--deduplication-table", "seen"], 2, "leave it out with outbox"),
        ([*BY_STORE, *AT_ONCE, "--deduplication-store", "sqlite:///no.db"], 1, "There is no store"),
        (["sweep", *EVICT[1:], "--algorithm", "state-based", "--out", "out"], 2, "--documents"),
        (["sweep", *EVICT[1:], "--algorithm", "outbox"], 2, "give --app and --out"),
        (["sweep", *EVICT[1:], "--algorithm", "outbox", "--out", "out", "--store", "sqlite:///no.db"], 1, "no store"),
        (["sweep", *EVICT[1:], "--algorithm", "outbox", "--out", "out", "--table", "others"], 1, "no table"),
        (["tokens", *EVICT[1:], "--messages", "no.parquet", "--out", "out"], 1, "There is no log"),
        (["tokens", *EVICT[1:], "--out", "out"], 2, "--messages"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_said_in_one_sentence(consistent, store, arguments, code, sentence):
    said = consistent(*arguments)

    assert said.code == code
    assert sentence in said.err
    assert "Traceback" not in said.err
    assert said.out == ""


SWEEP = ["sweep", "--store", "sqlite:///store.db", "--table", TABLE, "--documents", "documents"]


class Died(BaseException):
    """Stands for a worker that is killed."""


def die_when_prepared(call: str) -> None:
    if call == "prepare":
        raise Died


@pytest.fixture
def office(tmp_path) -> Office:
    """Give an office with two letters that count, and one of a worker that died."""

    async def table():
        return await connect(f"sqlite:///{tmp_path}/store.db").table(TABLE)

    office = Office(tmp_path / "documents", asyncio.run(table()))
    for number in range(2):
        office.process(ask(f"m-{number}"))
    with pytest.raises(Died):
        office.process(ask("m-2"), after=die_when_prepared)
    assert len(office.files) == 3
    return office


def test_it_deletes_what_counts_for_nothing_once_that_is_old_enough(consistent, office):
    nothing = {"attempts": 0, "documents": 0, "young": 0, "open": 0, "given_up": 0}
    assert consistent(*SWEEP, "--json").document == nothing | {"young": 1}
    assert consistent(*SWEEP).out.startswith("Left alone: 1 attempt begun less than")
    assert len(office.files) == 3

    done = consistent(*SWEEP, *AT_ONCE)

    assert (done.code, done.out) == (0, "Deleted 1 document of 1 attempt that never committed.\n")
    assert set(office.files) == {letter.name for letter in office.announced}
    assert consistent(*SWEEP, *AT_ONCE, "--json").document == nothing | {"given_up": 1}
    office.sweep(days_later=2)
    assert consistent(*SWEEP, *AT_ONCE).out == "Nothing was left behind.\n"


def test_a_store_of_documents_that_cannot_be_opened_is_a_wrong_usage(consistent, office):
    done = consistent(*SWEEP[:-1], "ftp://host/folder")
    assert done.code == 2
    assert "ftp://, cannot be opened" in done.err


@pytest.mark.parametrize("command", [["sweep"], ["forget", "Desk", "d-1"]], ids=["sweep", "forget"])
@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("nowhere", "nowhere"),
        ("documents/nowhere", "documents/nowhere"),
        ("file:///nowhere/at%20all", "/nowhere/at all"),
        ("store.db", "store.db"),
    ],
)
def test_a_folder_of_documents_that_is_not_there_is_told(consistent, office, command, url, shown):
    done = consistent(*command, *SWEEP[1:-1], url)

    assert done.code == 2
    (said,) = re.findall(r"There is no folder of documents at (.*?): say", " ".join(done.err.split()))
    assert said in (shown, str(Path.cwd() / shown))
    assert len(office.files) == 3


def test_a_table_that_is_not_there_is_not_made(consistent, tmp_path):
    (tmp_path / "documents").mkdir()
    assert consistent(*SWEEP).code == 1
    assert not Path(tmp_path, "store.db").exists()


def test_a_batch_with_an_outbox_takes_no_documents(consistent, tmp_path):
    log = tmp_path / "log.jsonl"
    log.write_text('{"message_id": "m", "type": "PlaceOrder", "body": "{}"}\n')
    run = ["run", "--app", "samples.invoices:app", "--messages", str(log), "--out", "out", *SWEEP[1:]]
    done = consistent(*run, "--algorithm", "outbox")
    assert done.code == 2
    assert "Only the algorithm state-based stores documents" in done.err
