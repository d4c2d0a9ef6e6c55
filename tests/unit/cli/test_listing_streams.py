"""`consistent streams` lists the streams of a table, all or some."""

from tests.support.logs import GAME, OTHER_GAME

ON_STORE = ["--store", "sqlite:///store.db", "--table", "games"]


def keys(said):
    return [(each["handler"], each["business_id"]) for each in said.document["streams"]]


def test_all_streams_are_listed_in_the_order_of_their_keys(consistent, store):
    said = consistent("streams", *ON_STORE, "--json")

    assert keys(said) == [("LeaderBoard", GAME), ("ShootingRange", OTHER_GAME), ("ShootingRange", GAME)]
    assert not said.document["more"]


def test_a_stream_is_described_by_its_header(consistent, store):
    said = consistent("streams", *ON_STORE, "--handler", "ShootingRange", "--prefix", "7d44", "--json")

    assert said.document["streams"] == [
        {
            "handler": "ShootingRange",
            "business_id": GAME,
            "versions": 3,
            "kept_from": 1,
            "runs": 1,
            "newest": "2026-03-01T12:00:00Z",
            "horizon": None,
        }
    ]


def test_a_prefix_needs_no_handler(consistent, store):
    assert keys(consistent("streams", *ON_STORE, "--prefix", "0000", "--json")) == [
        ("ShootingRange", OTHER_GAME)
    ]


def test_what_is_over_the_limit_is_said_to_be_there(consistent, store):
    said = consistent("streams", *ON_STORE, "--limit", "2")

    assert said.out.count(GAME) + said.out.count(OTHER_GAME) == 2
    assert "There are more than these 2" in said.out
    assert consistent("streams", *ON_STORE, "--limit", "2", "--json").document["more"]


def test_no_limit_shows_all(consistent, store):
    assert len(keys(consistent("streams", *ON_STORE, "--limit", "0", "--json"))) == 3


def test_a_table_without_such_streams_says_so(consistent, store):
    said = consistent("streams", *ON_STORE, "--handler", "Nobody")

    assert (said.code, said.out) == (0, "There are no such streams.\n")
    assert consistent("streams", *ON_STORE, "--handler", "Nobody", "--json").document == {
        "streams": [],
        "more": False,
    }
