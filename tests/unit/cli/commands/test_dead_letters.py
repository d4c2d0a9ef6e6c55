"""`consistent letters`, `letters discard`, and the refusals of `letters redrive`: without Spark."""

import json

import pytest

from runtime import Envelope, dead_letters
from tests.support.consumer import Consumer
from tests.support.logs import GAME, OTHER_GAME, message_id, row
from tests.unit.cli.stores import NOW, ON_STORE, on_store

LETTERS = ["letters", *ON_STORE]
DISCARD = ["letters", "discard", *ON_STORE]
REDRIVE = ["letters", "redrive", "--app", "samples.shooting_range:app", "--out", "out", *ON_STORE]


async def refuse(table):
    """Deliver messages that become dead letters: two of games, and one of no object."""
    bad = [
        (row(10, "FireAt", {"game_id": GAME, "position": "far"}), GAME),
        (row(11, "FireAt", {"game_id": OTHER_GAME, "position": "near"}), OTHER_GAME),
        (row(12, "Surprise", {}), None),
    ]
    await Consumer(table, clock=NOW).handle(
        *(
            Envelope.of(each["message_id"], each["type"], each["body"], business_id=business_id)
            for each, business_id in bad
        )
    )


@pytest.fixture
def refused(store):
    on_store(store, refuse)


@pytest.fixture
def ids(consistent):
    """Return a function that lists the message ids of dead letters."""
    return lambda *options: [
        each["message_id"] for each in consistent(*LETTERS, *options, "--json").document["letters"]
    ]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], [11, 10, 12]),
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
def test_dead_letters_are_selected_and_listed_by_stream(consistent, refused, ids, options, expected):
    assert ids(*options) == [*map(message_id, expected)]
    said = consistent(*LETTERS, *options).out
    assert all(message_id(number) in said for number in expected)
    assert expected or said == "There are no such dead letters.\n"


def test_groups_and_a_limit_shorten_the_list(consistent, refused):
    document = consistent(*LETTERS, "--group", "--json").document

    assert document["count"] == sum(group["count"] for group in document["groups"]) == 3
    assert "letters" not in document
    assert "Letters, by reason and error" in consistent(*LETTERS, "--group").out
    assert "Letters, the first 1 of 3" in consistent(*LETTERS, "--limit", "1").out


def test_an_export_has_all_selected_dead_letters_and_is_not_overwritten(consistent, refused, tmp_path):
    said = consistent(*LETTERS, "--limit", "1", "--export", "letters.jsonl")

    lines = [json.loads(line) for line in (tmp_path / "letters.jsonl").read_text().splitlines()]
    assert "Wrote 3 letters to letters.jsonl." in said.err
    assert [line["body"] for line in lines] == [
        {"game_id": OTHER_GAME, "position": "near"},
        {"game_id": GAME, "position": "far"},
        {},
    ]
    again = consistent(*LETTERS, "--export", "letters.jsonl")
    assert (again.code, "letters.jsonl exists" in again.err) == (2, True)


def test_an_export_that_is_interrupted_leaves_no_file_that_looks_complete(
    consistent, refused, tmp_path, monkeypatch
):
    def die(_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(dead_letters, "to_line", die)
        consistent(*LETTERS, "--export", "letters.jsonl")

    assert not (tmp_path / "letters.jsonl").exists()
    assert consistent(*LETTERS, "--export", "letters.jsonl").code == 0
    assert not list(tmp_path.glob("*unfinished*"))


def test_discarded_dead_letters_are_deleted_after_a_yes(consistent, refused, ids):
    dry = consistent(*DISCARD, "--reason", "invalid_body", "--dry-run", "--json")
    assert (dry.document["count"], dry.document["discarded"]) == (2, 0)
    asked = consistent(*DISCARD, "--all")
    assert (asked.code, "confirm with --yes, or try --dry-run first" in asked.err) == (2, True)
    assert len(ids()) == 3

    said = consistent(*DISCARD, "--reason", "invalid_body", "--yes")

    assert (said.code, "2 letters discarded." in said.out) == (0, True)
    assert ids() == [message_id(12)]
    assert consistent(*DISCARD, "--all", "--yes", "--json").document["discarded"] == 1
    assert "There are no such dead letters." in consistent(*DISCARD, "--all").out


@pytest.mark.parametrize("options", [["--publish", "ftp://x"], ["--map", "Hit=hits"]])
def test_an_invalid_target_is_refused_before_a_redrive(consistent, refused, options):
    said = consistent(*REDRIVE, "--all", *options)

    assert (said.code, "Batch" in said.err) == (2, False), said.err


def test_a_dry_run_of_a_redrive_counts_selected_and_edited_dead_letters(consistent, refused, tmp_path):
    said = consistent(*REDRIVE, "--handler", "ShootingRange", "--dry-run")
    assert (said.code, "Dry run: nothing was redriven." in said.out) == (0, True)

    consistent(*LETTERS, "--message", message_id(10), "--export", "edit.jsonl")
    edit = (*REDRIVE, "--edit", "edit.jsonl", "--dry-run", "--json")
    some, every = consistent(*edit, "--batch-id", "new"), consistent(*edit, "--all")
    assert (some.document["count"], "that differ: 0 of 1." in some.err) == (1, True)
    assert every.document["count"] == 3

    mended = json.loads((tmp_path / "edit.jsonl").read_text()) | {"body": {"game_id": GAME, "position": 5}}
    (tmp_path / "mended.jsonl").write_text(json.dumps(mended))
    assert "that differ: 1 of 1." in consistent(*REDRIVE, "--edit", "mended.jsonl", "--dry-run").err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("chosen", [["--newer-than", "1d"], ["--reason", "handler_error"]])
def test_a_redrive_of_nothing_succeeds_without_a_batch(consistent, refused, tmp_path, chosen):
    said = consistent(*REDRIVE, *chosen)

    assert (said.code, said.out, said.err) == (0, "There are no such dead letters.\n", "")
    assert consistent("batches", *ON_STORE, "--json").document == {"batches": []}
    assert not (tmp_path / "out").exists()


def test_show_tells_of_dead_letters_even_of_an_object_without_versions(consistent, refused):
    said = consistent("show", *ON_STORE, "ShootingRange", GAME)
    assert "`consistent letters` lists the dead letters." in said.out

    new = "00000000-0000-4000-8000-0000000000aa"
    body = {"game_id": new, "position": "far"}
    message = Envelope.of(message_id(20), "FireAt", row(20, "FireAt", body)["body"], business_id=new)
    on_store("sqlite:///store.db", lambda table: Consumer(table, clock=NOW).handle(message))

    document = consistent("show", *ON_STORE, "ShootingRange", new, "--json").document
    assert (document["newest_version"], document["newest"], document["letters"]) == (0, None, 1)
    (stream,) = consistent("show", *ON_STORE, "--prefix", new, "--json").document["streams"]
    assert stream["newest"] is None
