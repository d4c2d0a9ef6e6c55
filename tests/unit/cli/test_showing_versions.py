"""`consistent show` shows the versions of a stream, or all of one of them."""

import pytest

from tests.support.logs import GAME, message_id

ON_STORE = ["--store", "sqlite:///store.db", "--table", "games"]
SHOW = ["show", *ON_STORE, "ShootingRange", GAME]


def test_every_version_is_listed_with_its_message_and_state(consistent, store):
    said = consistent(*SHOW)

    assert said.code == 0
    assert all(message_id(number) in said.out for number in (1, 2, 3))
    assert '{"target_position": 40, "number_of_attempts": 1}' in said.out


def test_the_same_as_json(consistent, store):
    document = consistent(*SHOW, "--json").document

    assert document["newest_version"] == 3
    assert document["kept_from"] == 1
    assert [each["version"] for each in document["versions"]] == [1, 2, 3]
    assert document["versions"][1] == {
        "version": 2,
        "message_id": message_id(2),
        "type": "FireAt",
        "now": "2026-03-01T12:00:00Z",
        "enqueued_at": None,
        "batch": None,
        "changed": True,
        "state": {"target_position": 40, "number_of_attempts": 1},
    }
    assert document["state"] == document["versions"][-1]["state"]


def test_the_newest_versions_are_shown_up_to_the_limit(consistent, store):
    said = consistent(*SHOW, "--limit", "2")

    assert "The newest 2 of 3 versions" in said.out
    assert message_id(1) not in said.out
    assert [each["version"] for each in consistent(*SHOW, "--limit", "1", "--json").document["versions"]] == [
        3
    ]


@pytest.mark.parametrize(
    "which", [["--version", "2"], ["--message", message_id(2)], ["--message", message_id(2).upper()]]
)
def test_one_version_with_all_that_is_recorded(consistent, store, which):
    document = consistent(*SHOW, *which, "--json").document

    assert document["version"] == 2
    assert document["before"] == {"target_position": 40, "number_of_attempts": 0}
    assert document["after"] == {"target_position": 40, "number_of_attempts": 1}
    assert document["revision"] == 1
    assert all(len(document[name]) == 32 for name in ("fingerprint", "outputs_digest", "state_digest"))
    assert consistent(*SHOW, *which).out.count(document["fingerprint"]) == 1


def test_what_a_version_changed(consistent, store):
    document = consistent(*SHOW, "--version", "2", "--diff", "--json").document

    assert document["changes"] == [{"field": "number_of_attempts", "before": 0, "after": 1}]
    said = consistent(*SHOW, "--version", "2", "--diff").out
    assert "number_of_attempts  0       1" in said
    assert "\n\nChanges of the state\n" in said
    assert "number_of_attempts: 0 → 1" in consistent(*SHOW, "--diff").out


def test_a_business_id_in_another_spelling_is_found(consistent, store):
    spelled = GAME.upper().replace("-", "")

    said = consistent("show", *ON_STORE, "ShootingRange", spelled, "--json")

    assert said.document["business_id"] == GAME


@pytest.mark.parametrize(
    ("which", "sentence"),
    [
        (["--version", "4"], "There is no version 4: the newest is 3."),
        (["--message", "m9"], "No version that is kept was made by message m9."),
    ],
)
def test_a_version_that_is_not_there(consistent, store, which, sentence):
    said = consistent(*SHOW, *which)

    assert (said.code, said.err) == (1, f"Error: {sentence}\n")
