"""`consistent letters`, `letters discard` and what `redrive` refuses: without Spark."""

import json

import pytest

from runtime import Envelope
from tests.support.consumer import Consumer
from tests.support.logs import GAME, OTHER_GAME, message_id, row
from tests.unit.cli.stores import NOW, on_store

ON_STORE = ["--store", "sqlite:///store.db", "--table", "games"]
APP = ["--app", "samples.shooting_range:app", "--out", "out"]


async def refuse(table):
    """Deliver what cannot be handled: two for games, and one for nobody."""
    bad = [
        row(10, "FireAt", {"game_id": GAME, "position": "far"}),
        row(11, "FireAt", {"game_id": OTHER_GAME, "position": "near"}),
        row(12, "Surprise", {}),
    ]
    envelopes = [
        Envelope.of(each["message_id"], each["type"], each["body"], business_id=business_id)
        for each, business_id in zip(bad, (GAME, OTHER_GAME, None), strict=True)
    ]
    await Consumer(table, clock=NOW).handle(*envelopes)


@pytest.fixture
def refused(store):
    on_store(store, refuse)


def ids(said):
    return [each["message_id"] for each in said.document["letters"]]


def test_they_are_listed_stream_by_stream(consistent, refused):
    said = consistent("letters", *ON_STORE)

    assert said.code == 0
    assert ids(consistent("letters", *ON_STORE, "--json")) == [message_id(number) for number in (11, 10, 12)]
    assert all(message_id(number) in said.out for number in (10, 11, 12))
    assert "invalid_body" in said.out


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--reason", "unknown_type"], [12]),
        (["--handler", "ShootingRange"], [11, 10]),
        (["--stream", f"ShootingRange/{GAME.upper()}"], [10]),
        (["--message", message_id(11).upper()], [11]),
        (["--older-than", "1d"], [11, 10, 12]),
        (["--newer-than", "1d"], []),
        (["--newer-than", "9999w"], [11, 10, 12]),
        (["--reason", "unknown_type", "--reason", "invalid_body"], [11, 10, 12]),
        (["--handler", "Nobody"], []),
    ],
)
def test_those_that_are_asked_for(consistent, refused, options, expected):
    assert ids(consistent("letters", *ON_STORE, *options, "--json")) == [*map(message_id, expected)]


def test_groups_have_those_whose_errors_differ_in_values_only(consistent, refused):
    document = consistent("letters", *ON_STORE, "--group", "--json").document

    assert document["count"] == 3
    assert sum(group["count"] for group in document["groups"]) == 3
    assert "letters" not in document
    assert "Letters, by reason and error" in consistent("letters", *ON_STORE, "--group").out


def test_what_is_over_the_limit_is_counted(consistent, refused):
    said = consistent("letters", *ON_STORE, "--limit", "1")

    assert "Letters, the first 1 of 3" in said.out


def test_an_export_has_a_line_for_each(consistent, refused, tmp_path):
    said = consistent("letters", *ON_STORE, "--limit", "1", "--export", "letters.jsonl")

    lines = [json.loads(line) for line in (tmp_path / "letters.jsonl").read_text().splitlines()]
    assert "Wrote 3 letters to letters.jsonl." in said.err
    assert [line["body"] for line in lines] == [
        {"game_id": OTHER_GAME, "position": "near"},
        {"game_id": GAME, "position": "far"},
        {},
    ]
    again = consistent("letters", *ON_STORE, "--export", "letters.jsonl")
    assert (again.code, "letters.jsonl exists" in again.err) == (2, True)


def test_a_table_without_letters_says_so(consistent, store):
    assert consistent("letters", *ON_STORE).out == "There are no such dead letters.\n"
    assert "There are no such dead letters." in consistent("letters", "discard", *ON_STORE, "--all").out


def test_what_is_discarded_is_gone(consistent, refused):
    dry = consistent("letters", "discard", *ON_STORE, "--reason", "invalid_body", "--dry-run", "--json")
    assert (dry.document["count"], dry.document["discarded"]) == (2, 0)

    said = consistent("letters", "discard", *ON_STORE, "--reason", "invalid_body", "--yes")

    assert (said.code, "2 letters discarded." in said.out) == (0, True)
    assert ids(consistent("letters", *ON_STORE, "--json")) == [message_id(12)]
    assert consistent("letters", "discard", *ON_STORE, "--all", "--yes", "--json").document["discarded"] == 1


def test_nothing_is_discarded_where_nobody_can_be_asked(consistent, refused):
    said = consistent("letters", "discard", *ON_STORE, "--all")

    assert (said.code, "confirm with --yes, or try --dry-run first" in said.err) == (2, True)
    assert len(ids(consistent("letters", *ON_STORE, "--json"))) == 3


@pytest.mark.parametrize("options", [["--publish", "ftp://x"], ["--map", "Hit=hits"]])
def test_a_target_that_cannot_be_is_refused_before_a_redrive(consistent, refused, options):
    said = consistent("letters", "redrive", *APP, *ON_STORE, "--out", "outcomes", "--all", *options)

    assert (said.code, "Batch" in said.err) == (2, False), said.err


def test_a_dry_run_of_a_redrive_says_what_would_be_redriven(consistent, refused, tmp_path):
    said = consistent("letters", "redrive", *APP, *ON_STORE, "--handler", "ShootingRange", "--dry-run")

    assert (said.code, "Dry run: nothing was redriven." in said.out) == (0, True)
    consistent("letters", *ON_STORE, "--message", message_id(10), "--export", "edit.jsonl")
    new = ("--edit", "edit.jsonl", "--batch-id", "new")
    some = consistent("letters", "redrive", *APP, *ON_STORE, *new, "--dry-run", "--json")
    assert (some.document["count"], "that differ: 0 of 1." in some.err) == (1, True)
    mended = json.loads((tmp_path / "edit.jsonl").read_text()) | {"body": {"game_id": GAME, "position": 5}}
    (tmp_path / "mended.jsonl").write_text(json.dumps(mended))
    said = consistent("letters", "redrive", *APP, *ON_STORE, "--edit", "mended.jsonl", "--dry-run")
    assert "that differ: 1 of 1." in said.err
    every = consistent(
        "letters", "redrive", *APP, *ON_STORE, "--edit", "edit.jsonl", "--all", "--dry-run", "--json"
    )
    assert every.document["count"] == 3
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("chosen", [["--newer-than", "1d"], ["--reason", "handler_error"]])
def test_a_redrive_of_nothing_begins_no_batch_and_is_no_failure(consistent, refused, tmp_path, chosen):
    said = consistent("letters", "redrive", *APP, *ON_STORE, *chosen)

    assert (said.code, said.out, said.err) == (0, "There are no such dead letters.\n", "")
    assert consistent("letters", "redrive", *APP, *ON_STORE, *chosen, "--json").document["count"] == 0
    assert consistent("batches", *ON_STORE, "--json").document == {"batches": []}
    assert not (tmp_path / "out").exists()


def test_an_object_that_has_only_letters_has_no_newest_version(consistent, store):
    alone = "00000000-0000-4000-8000-0000000000aa"

    async def refuse_alone(table):
        line = row(20, "FireAt", {"game_id": alone, "position": "far"})
        message = Envelope.of(line["message_id"], line["type"], line["body"], business_id=alone)
        await Consumer(table, clock=NOW).handle(message)

    on_store(store, refuse_alone)

    document = consistent("show", *ON_STORE, "ShootingRange", alone, "--json").document
    assert (document["newest_version"], document["newest"], document["letters"]) == (0, None, 1)
    streams = consistent("show", *ON_STORE, "--prefix", alone, "--json").document["streams"]
    assert [each["newest"] for each in streams] == [None]


def test_a_stream_with_letters_says_so(consistent, refused):
    said = consistent("show", *ON_STORE, "ShootingRange", GAME)

    assert "`consistent letters` lists the dead letters." in said.out
    assert consistent("show", *ON_STORE, "ShootingRange", GAME, "--json").document["letters"] == 1
