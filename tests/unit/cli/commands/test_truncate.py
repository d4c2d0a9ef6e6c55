"""Policies, and the report of a truncation."""

import io
import json

import pytest
from rich.console import Console

from runtime.cli.commands.truncate import TruncationReport
from runtime.clock import system_clock
from runtime.leases import Leases
from runtime.spark.truncation import TruncatedCount
from tests.support.logs import GAME
from tests.unit.cli.stores import on_store

ON_STORE = ["--store", "sqlite:///store.db", "--table", "games"]


GAMES = ["--handler", "ShootingRange"]


@pytest.fixture
def policy(consistent, store):
    """Call a command of `policy`, and return what it said."""

    def call(verb, *options):
        return consistent("policy", verb, *ON_STORE, *options)

    return call


def listed(policy):
    return {
        (each["handler"], each["stream"]): each
        for each in json.loads(policy("list", "--json").out)["policies"]
    }


def test_a_table_has_none_at_first(policy):
    assert policy("list").out == "The table has no policies.\n"
    assert listed(policy) == {}


def test_what_is_set_is_listed(policy):
    options = ["--older-than", "90d", "--keep-last", "1", "--redelivery-window", "12h", "--allow-undated"]
    assert policy("set", *GAMES, *options).code == 0
    assert policy("set", *GAMES, "--stream", GAME.upper(), "--hold").code == 0

    of_handler, of_stream = listed(policy)["ShootingRange", None], listed(policy)["ShootingRange", GAME]
    assert (of_handler["older_than_seconds"], of_handler["keep_last"]) == (90 * 86400, 1)
    assert (of_handler["redelivery_window_seconds"], of_handler["allow_undated"]) == (43200, True)
    assert (of_handler["hold"], of_stream["hold"], of_stream["keep_last"]) == (False, True, None)
    shown = policy("list").out
    assert "90d" in shown
    assert "12h" in shown
    assert "held" in shown


def test_rules_and_hold_are_set_and_removed_apart(policy):
    policy("set", "--older-than", "30d", "--hold")
    policy("set", "--keep-last", "5")

    assert listed(policy)[None, None]["hold"]
    assert listed(policy)[None, None]["older_than_seconds"] is None

    said = policy("remove")
    assert (said.code, said.out) == (0, "The rules are removed for the table.\nIt is still held.\n")
    assert listed(policy)[None, None]["hold"]
    assert policy("remove", "--hold").out == "The hold is lifted for the table.\n"
    assert listed(policy) == {}


@pytest.mark.parametrize(
    ("verb", "options", "sentence"),
    [
        ("set", [], "--older-than AGE, --keep-last N or both, or --hold"),
        ("set", ["--older-than", "3h"], "Versions younger than 24h are kept"),
        ("set", ["--allow-undated", "--hold"], "--older-than AGE, --keep-last N"),
        ("set", ["--stream", "7", "--hold"], "give --handler too"),
        ("set", ["--handler", "Typo", "--hold"], "Nothing in the table is of Typo"),
        ("set", ["--handler", "Shooting", "--keep-last", "1"], "Nothing in the table is of Shooting"),
        ("set", [*GAMES, "--stream", "7", "--hold"], "Nothing in the table is of ShootingRange 7"),
        (
            "set",
            [*GAMES, "--stream", GAME[:-1], "--keep-last", "1"],
            "Nothing in the table is of ShootingRange",
        ),
        (
            "set",
            ["--handler", f"ShootingRange-{GAME[:8]}", "--hold"],
            "Nothing in the table is of ShootingRange-",
        ),
        ("remove", [], "There are no rules for the table"),
        ("remove", [*GAMES, "--stream", "7", "--hold"], "There is no hold for ShootingRange 7"),
    ],
)
def test_what_was_asked_for_wrongly(policy, verb, options, sentence):
    said = policy(verb, *options)

    assert said.code == 2
    assert sentence in said.err
    assert listed(policy) == {}


def test_a_policy_of_an_object_is_removed_by_any_spelling_of_its_id(policy):
    policy("set", *GAMES, "--stream", GAME, "--hold")

    said = policy("remove", *GAMES, "--stream", GAME.upper(), "--hold")

    assert (said.code, listed(policy)) == (0, {}), said.err


def test_a_second_truncation_is_refused_before_spark_starts(consistent, store):
    on_store(store, lambda table: Leases(table, system_clock).take("ada on a (process 1)"))

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


def shown(report: TruncationReport) -> str:
    file = io.StringIO()
    console = Console(width=200, file=file)
    for part in report.parts():
        console.print(part)
    return file.getvalue()


def test_its_document_sums_up():
    document = TruncationReport(COUNTS, 24, dry_run=False).document()

    assert document["handlers"] == [
        {
            "handler": "Game",
            "streams": 8,
            "cut": 5,
            "versions": 43,
            "runs": 9,
            "rows": 12,
            "bytes": 1050,
            "letters": 7,
        },
        {
            "handler": "Score",
            "streams": 4,
            "cut": 0,
            "versions": 0,
            "runs": 0,
            "rows": 0,
            "bytes": 0,
            "letters": 0,
        },
    ]
    assert (document["streams"], document["cut"], document["rows"], document["bytes"]) == (12, 5, 12, 1050)
    assert (document["requests"], document["requests_per_row"]) == (24, 2.0)
    assert document["letters"] == 7
    assert document["held"] == {"hold": 2, "open_batch": 2}
    assert document["rules"] == {"handler": 7, "stream": 1}
    assert document["without_rules"] == 3


def test_people_read_it_in_sentences():
    text = shown(TruncationReport(COUNTS, 24, dry_run=False))

    assert "43 versions in 9 runs were cut, of 5 out of 12 streams." in text
    assert (
        "By the policies of the table: 7 streams by that of the handler, 1 stream by that of the stream."
        in text
    )
    assert "3 streams have no policy, and were left alone." in text
    assert "Held back: 2 streams by a hold, 2 streams by batches that are not published." in text
    assert "12 rows deleted. 24 requests, 2.00 for each row." in text


def test_a_dry_run_speaks_of_what_would_be():
    text = shown(TruncationReport([TruncatedCount("Game", "given", None, 1, 1, 1, 1, 1, 1)], 5, dry_run=True))

    assert "1 version in 1 run would be cut, of 1 out of 1 stream." in text
    assert "1 row would be deleted. 5 requests, 5.00 for each row." in text
    assert "policies" not in text


def test_where_nothing_is_deleted_nothing_is_divided():
    report = TruncationReport([TruncatedCount("Game", "given", None, 1, 0, 0, 0, 0, 0)], 5, dry_run=False)

    assert report.document()["requests_per_row"] is None
    assert "0 rows deleted. 5 requests." in shown(report)
