"""A page costs a bounded number of requests, however much the table holds."""

import json
from typing import Any

import pytest

from eventstore import InterceptedTable
from runtime import Envelope
from runtime.explore import application, reading
from tests.support.explored import GAME, Explored, fire

GAMES = 2_600


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """Make a table with a few objects, and one with thousands of objects and a long history."""
    few = Explored(tmp_path_factory.mktemp("few"))
    few.batch([fire(game, game, 40) for game in range(1, 9)])
    many = Explored(tmp_path_factory.mktemp("many"))
    many.batch([fire(game, game, 40) for game in range(1, GAMES)], rounds=1)
    for night in range(1, 31):
        many.batch([fire(10_000 + 500 * night + shot, 1, 40) for shot in range(450)], rounds=1)
    return few, many


PAGES: dict[str, dict[str, Any]] = {
    "": {}, "batches": {}, "objects": {}, "letters": {}, "publications": {},
    "batch": {"id": "night-1"}, "object": {"handler": "ShootingRange", "id": GAME, "version": 1},
    "message": {"id": "00000000-0000-4000-8000-000000000001", "handler": "ShootingRange", "object": GAME},
}  # fmt: skip
MOST = {
    "": 50, "batches": 40, "objects": 1, "letters": 4, "publications": 1, "batch": 2, "object": 9, "message": 27
}  # fmt: skip


@pytest.mark.parametrize("page", PAGES)
def test_a_page_costs_a_bounded_number_of_requests(tables, open_explorer, page):
    counts = []
    for explored in tables:
        watched = InterceptedTable(explored.table)
        browser = open_explorer(explored)
        browser.explorer._opened = watched
        assert browser.get(page, **PAGES[page]).status_code == 200
        counts.append(watched.calls)

    assert max(counts) <= MOST[page], counts


@pytest.mark.parametrize("order", reading.ORDERS)
def test_another_order_examines_2000_objects_at_most(tables, open_explorer, order):
    browser = open_explorer(tables[1])
    found = browser.json("objects", order=order)

    assert found["examined"] <= 2_000
    assert found["next"] is not None


def test_pages_by_key_list_every_object_once(tables, open_explorer):
    browser, after, ids = open_explorer(tables[1]), "", []
    while after is not None:
        found = browser.json("objects", handler="ShootingRange", after=after)
        ids += [each["business_id"] for each in found["objects"]]
        assert len(found["objects"]) <= 50
        after = found["next"]

    assert ids == sorted(set(ids))
    assert len(ids) == GAMES - 1


def test_batches_by_key_are_listed_once(tables, open_explorer, monkeypatch):
    monkeypatch.setattr(application, "ROWS", 7)
    browser, ids = open_explorer(tables[1]), []
    query: dict[str, str] | None = {}
    while query is not None:
        found = browser.json("batches", **query)
        ids += [each["batch_id"] for each in found["batches"]]
        query = {"after": found["next"]} if found["next"] else None

    assert ids == [f"night-{number}" for number in range(31, 0, -1)]


def test_letters_by_key_are_listed_once(tmp_path, open_explorer, monkeypatch):
    explored = Explored(tmp_path)
    body = json.dumps({"game_id": GAME, "position": "x"})
    broken = [fire(number, number % 7 + 1, 1)._replace(body=body) for number in range(9)]
    strange = [Envelope(f"strange-{number}", "Strange", "{}") for number in range(9)]
    others = [
        fire(100 + game, game, 1)._replace(body=str(fire(1, game, 1).body).replace("1}", '"x"}'))
        for game in range(2, 12)
    ]
    explored.batch([*broken, *strange, *others])
    browser, after, listed = open_explorer(explored), "", []
    whole = {(each["letter"], each["stream"]) for each in browser.json("letters")["letters"]}
    monkeypatch.setattr(reading, "_LETTERS", 4)
    monkeypatch.setattr(reading, "WINDOW", 3)
    while after is not None:
        found = browser.json("letters", after=after)
        listed += [(each["letter"], each["stream"]) for each in found["letters"]]
        after = found["next"]

    assert set(listed) == whole
    assert len(listed) == len(whole) == 28


def test_each_version_of_a_long_history_is_found(tables, open_explorer):
    browser = open_explorer(tables[1])
    newest = browser.json("object", handler="ShootingRange", id=GAME)["newest_version"]
    for number in (1, 2, 451, 7_000, newest - 1, newest):
        found = browser.json("object", handler="ShootingRange", id=GAME, version=number)
        assert found["version"]["version"] == number
        time = found["version"]["now"]
        at = browser.json("object", handler="ShootingRange", id=GAME, at=time)["version"]["version"]
        assert browser.json("object", handler="ShootingRange", id=GAME, version=at)["version"]["now"] == time
