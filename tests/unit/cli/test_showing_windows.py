"""`consistent window` says back to when duplicates are recognised for certain."""

import pytest

from runtime.algorithms.state_based.truncation import DAY, TruncationRules, truncate_stream
from runtime.ledger.batch import OpenBatches
from runtime.retries import RetryPolicy
from tests.support.logs import GAME
from tests.unit.cli.stores import NOW, TABLE, on_store

WINDOW = ["window", "--store", "sqlite:///store.db", "--table", TABLE]


@pytest.fixture
def cut(store):
    """Cut the first versions of the game, whose messages have no time."""
    rules = TruncationRules.of(
        NOW.microseconds + 2 * DAY,
        OpenBatches(),
        older_than=DAY,
        allow_undated=True,
        keep_last=1,
        acknowledged_after=0,
    )
    retries = RetryPolicy()
    on_store(
        store, lambda table: truncate_stream(table, f"ShootingRange-{GAME}", rules, retries.beside(table))
    )


def test_of_one_stream(consistent, cut):
    said = consistent(*WINDOW, "ShootingRange", GAME)

    assert "An unknown message without enqueued_at is too_late." in said.out
    assert consistent(*WINDOW, "ShootingRange", GAME.upper(), "--json").document == {
        "handler": "ShootingRange",
        "business_id": GAME,
        "versions": 3,
        "kept_from": 3,
        "oldest": "2026-03-01T12:00:00Z",
        "horizon": None,
        "undated_cut": True,
        "sentence": "Each duplicate with enqueued_at is recognised, however old it is. An unknown message without "
        "enqueued_at is too_late.",
    }


def test_of_a_table_and_of_a_handler(consistent, cut):
    document = consistent(*WINDOW, "--json").document

    assert (document["streams"], document["never_cut"], document["undated_cut"]) == (3, 2, 1)
    assert [each["business_id"] for each in document["worst"]] == [GAME]
    said = consistent(*WINDOW)
    assert "Of 3 streams, 2 were never cut." in said.out
    assert GAME in said.out
    alone = consistent(*WINDOW, "LeaderBoard")
    assert "Of 1 stream, 1 was never cut." in alone.out
    assert "No version was cut: each duplicate is recognised, however old it is." in alone.out
    assert consistent(*WINDOW, "Nobody").out == "There are no such streams.\n"


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["ShootingRange", "nobody"], 1, "There is no stream of ShootingRange for nobody"),
        (["--store", "sqlite:///other.db"], 1, "There is no store at"),
    ],
)
def test_what_is_not_there_is_said(consistent, store, arguments, code, sentence):
    said = consistent(*WINDOW, *arguments)

    assert (said.code, said.out) == (code, "")
    assert sentence in said.err
