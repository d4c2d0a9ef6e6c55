"""`consistent truncate`: policies, documents, ids, and the report on versions."""

import asyncio
import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from eventstore import connect
from runtime.cli import options
from runtime.cli.commands.truncate import describe_truncation, parts_of_truncation
from runtime.clock import system_clock
from runtime.leases import CleanUpLease
from runtime.spark.truncation import TruncatedCount
from tests.support.logs import GAME
from tests.unit.cli.stores import ON_STORE, TABLE, on_store
from tests.unit.runtime.documents.letters_desk import Office, ask

GAMES = ["--handler", "ShootingRange"]
IDS_ELSEWHERE = ["--auxiliary-store", "sqlite:///other.db", "--auxiliary-table", "seen"]
IDS = ["truncate", "--app", "samples.shooting_range:app", *ON_STORE]
AT_ONCE = ["--older-than", "0s", "--allow-young"]
DOCUMENTS = ["truncate", *ON_STORE, "--documents", "documents"]


@pytest.fixture
def policy(consistent, store):
    return lambda verb, *more: consistent("truncate", "--policy", verb, *ON_STORE, *more)


def listed(policy):
    return {(each["handler"], each["stream"]): each for each in policy("list", "--json").document["policies"]}


def test_policies_are_listed_and_removed_by_any_spelling_of_an_id(policy):
    rules = ["--older-than", "90d", "--keep-last", "1", "--redelivery-window", "12h", "--allow-undated"]
    assert policy("set", *GAMES, *rules).code == 0
    assert policy("set", *GAMES, "--stream", GAME.upper(), "--hold").code == 0

    of_handler, of_stream = listed(policy)["ShootingRange", None], listed(policy)["ShootingRange", GAME]
    assert (of_handler["older_than_seconds"], of_handler["keep_last"]) == (90 * 86400, 1)
    assert (of_handler["redelivery_window_seconds"], of_handler["allow_undated"]) == (43200, True)
    assert (of_handler["hold"], of_stream["hold"], of_stream["keep_last"]) == (False, True, None)
    assert all(text in policy("list").out for text in ("90d", "12h", "held"))

    assert policy("remove", *GAMES, "--stream", GAME.upper(), "--hold", "--yes").code == 0
    assert list(listed(policy)) == [("ShootingRange", None)]


def test_rules_and_hold_are_set_and_removed_separately_and_only_after_a_yes(policy):
    policy("set", "--older-than", "30d", "--hold")
    policy("set", "--keep-last", "5")
    assert listed(policy)[None, None]["hold"]
    assert listed(policy)[None, None]["older_than_seconds"] is None

    said = policy("remove", "--hold")
    assert (said.code, "confirm with --yes" in said.err, listed(policy)[None, None]["hold"]) == (
        2,
        True,
        True,
    )

    said = policy("remove", "--yes")
    assert (said.code, said.out) == (0, "The rules are removed for the table.\nIt is still held.\n")
    assert listed(policy)[None, None]["hold"]
    assert policy("remove", "--hold", "--yes").out == "The hold is lifted for the table.\n"
    assert listed(policy) == {}


@pytest.mark.parametrize(
    ("algorithm", "elsewhere"),
    [("outbox", []), ("deduplication-store", []), ("deduplication-store", IDS_ELSEWHERE)],
)
def test_ids_are_deleted_and_a_dry_run_counts_them(consistent, worked, algorithm, elsewhere, tmp_path):
    # A relative URL and the absolute one in the ledger are the same store.
    where = f"{algorithm} in seen of sqlite:///{tmp_path}/other.db" if elsewhere else algorithm
    worked(algorithm, where, elsewhere=bool(elsewhere))
    forget = [*IDS, "--algorithm", algorithm, *elsewhere]

    assert consistent(*forget, *AT_ONCE, "--dry-run").out.startswith("2 ids would be deleted. A later copy")
    assert consistent(*forget, "--older-than", "9999w", "--yes").out.startswith("0 ids were deleted.")
    assert consistent(*forget, *AT_ONCE, "--yes", "--json").document == {
        "dry_run": False,
        "ids": {"older_than_seconds": 0, "forgotten": 2},
    }
    assert consistent(*forget, *AT_ONCE, "--dry-run").out.startswith("0 ids would be deleted.")


class Died(BaseException):
    """Stands for a worker that is killed."""


def die_when_prepared(call: str) -> None:
    if call == "prepare":
        raise Died


@pytest.fixture
def office(tmp_path) -> Office:
    """Store two documents of committed versions, and an orphaned one of a worker that died."""

    async def table():
        return await connect(f"sqlite:///{tmp_path}/store.db").table(TABLE)

    office = Office(tmp_path / "documents", asyncio.run(table()))
    for number in range(2):
        office.process(ask(f"m-{number}"))
    with pytest.raises(Died):
        office.process(ask("m-2"), after=die_when_prepared)
    assert len(office.files) == 3
    return office


def test_orphaned_documents_are_deleted_once_they_are_old_enough(consistent, office):
    at_once = [*DOCUMENTS, "--dead-after", "0s"]

    assert consistent(*DOCUMENTS).out.startswith("Skipped: 1 attempt begun less than")
    assert consistent(*at_once, "--dry-run").out.startswith("Dry run: ")
    looked = consistent(*at_once, "--dry-run", "--json").document
    counts = {"attempts": 1, "documents": 1, "young": 0, "open": 0, "given_up": 0}
    assert looked == {"dry_run": True, "documents": counts}
    assert consistent(*at_once).code == 2
    assert len(office.files) == 3

    done = consistent(*at_once, "--yes")

    assert (done.code, done.out) == (0, "Deleted 1 document of 1 attempt that never committed.\n")
    assert set(office.files) == {letter.name for letter in office.announced}
    assert consistent(*at_once, "--json").document["documents"]["given_up"] == 1
    office.sweep(days_later=2)
    assert consistent(*at_once).out == "There are no orphaned documents.\n"


@pytest.mark.parametrize("command", [["truncate"], ["forget", "Desk", "d-1"]], ids=["truncate", "forget"])
@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("documents/nowhere", "documents/nowhere"),
        ("file:///nowhere/at%20all", "/nowhere/at all"),
        ("store.db", "store.db"),
        ("ftp://host/folder", "ftp:// cannot be opened"),
    ],
)
def test_a_missing_store_of_documents_is_named(consistent, office, command, url, shown):
    done = consistent(*command, *DOCUMENTS[1:-1], url)

    assert (done.code, len(office.files)) == (2, 3)
    said = " ".join(done.err.split())
    places = re.findall(r"There is no folder of documents at (.*?)\. Use", said) or [said]
    assert places[0] in (shown, str(Path.cwd() / shown)) or (url.startswith("ftp") and shown in said)


def test_only_the_requested_clean_up_is_done(consistent, office, monkeypatch):
    monkeypatch.setattr(options, "working", lambda *_, **__: pytest.fail("Spark would be started"))
    rules = ["--older-than", "9d", "--yes"]

    refused = consistent(*DOCUMENTS, "--dead-after", "0s", "--give-up-letters-older-than", "9d", "--yes")
    assert (refused.code, "There are no retention rules" in refused.err, len(office.files)) == (2, True, 3)
    assert consistent(*DOCUMENTS, *rules, "--only", "documents", "--dead-after", "0s").code == 0
    assert len(office.files) == 2
    with pytest.raises(pytest.fail.Exception, match="Spark would be started"):
        consistent(*DOCUMENTS, *rules)


def test_a_second_truncation_is_refused_before_spark_starts(consistent, store):
    on_store(store, lambda table: CleanUpLease(table, system_clock).take("ada on a (process 1)"))

    said = consistent("truncate", *ON_STORE, "--older-than", "7d")

    assert said.code == 1
    assert "This table is being cleaned up by ada on a (process 1) until 20" in said.err
    assert "--take-over" in said.err


COUNTS = [
    TruncatedCount("Game", "handler", None, 5, 4, 40, 8, 12, 1000),
    TruncatedCount("Game", "handler", "open_batch", 2, 1, 3, 1, 0, 50, letters=7),
    TruncatedCount("Game", "stream", "hold", 1, 0, 0, 0, 0, 0),
    TruncatedCount("Score", None, None, 3, 0, 0, 0, 0, 0),
    TruncatedCount("Score", None, "hold", 1, 0, 0, 0, 0, 0),
]


def shown(described) -> str:
    file = io.StringIO()
    for part in parts_of_truncation(described):
        Console(width=200, file=file).print(part)
    return file.getvalue()


def test_a_report_has_sums_and_sentences():
    document = describe_truncation(COUNTS, 24, dry_run=False)

    sums = [tuple(each.values()) for each in document["handlers"]]
    assert sums == [("Game", 8, 5, 43, 9, 12, 1050, 7), ("Score", 4, 0, 0, 0, 0, 0, 0)]
    assert [document[name] for name in ("streams", "cut", "rows", "bytes", "letters")] == [12, 5, 12, 1050, 7]
    assert (document["requests"], document["requests_per_row"], document["without_rules"]) == (24, 2.0, 3)
    assert document["held"] == {"hold": 2, "open_batch": 2}
    assert document["rules"] == {"handler": 7, "stream": 1}
    text = shown(document)
    assert "43 versions in 9 runs were cut, of 5 out of 12 streams." in text
    policies = "7 streams by that of the handler, 1 stream by that of the stream."
    assert f"By the policies of the table: {policies}" in text
    assert "3 streams have no policy, and were skipped." in text
    assert "Held back: 2 streams by a hold, 2 streams by unpublished batches." in text
    assert "12 rows deleted. 24 requests, 2.00 for each row." in text


def test_a_dry_run_speaks_of_what_would_be_deleted_and_nothing_is_divided_by_zero():
    one = TruncatedCount("Game", "given", None, 1, 1, 1, 1, 1, 1)
    text = shown(describe_truncation([one], 5, dry_run=True))
    assert "1 version in 1 run would be cut, of 1 out of 1 stream." in text
    assert "1 row would be deleted. 5 requests, 5.00 for each row." in text
    assert "policies" not in text

    nothing = describe_truncation([TruncatedCount("Game", "given", None, 1, 0, 0, 0, 0, 0)], 5, dry_run=False)
    assert nothing["requests_per_row"] is None
    assert "0 rows deleted. 5 requests." in shown(nothing)
    assert shown(describe_truncation([], 1, dry_run=False)) == "The table has no streams to truncate.\n"
