"""Each page shows what the table has, as HTML and as JSON, and only reads."""

import html
import json
import re
from pathlib import Path
from urllib.parse import parse_qsl

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from eventstore import Operation, drive, port
from runtime import Processor, UsageError
from runtime.explore import reading
from runtime.explore.application import read_only
from runtime.outcome_files import Part
from runtime.versions.readable import describe_version
from runtime.versions.stream import versions
from tests.support.explored import GAME, Explored, fire, played

OBJECT = {"handler": "ShootingRange", "id": GAME}


def paths(browser):
    """Return the address of each page, with a message and a letter that there are."""
    outcomes = browser.json("batch", id="night-3")["outcomes"]
    made = next(each for each in outcomes if each["outputs"])
    letter = browser.json("letters")["letters"][0]
    return {
        "": {}, "batches": {}, "batch": {"id": "night-3"}, "objects": {}, "object": OBJECT,
        "message": {"id": made["message_id"]}, "letters": {}, "publications": {},
        "letter": {"handler": letter["handler"], "id": letter["stream"], "letter": letter["letter"]},
    }  # fmt: skip


def test_each_page_is_html_with_a_json_form(browser):
    for page, query in paths(browser).items():
        shown, document = browser.get(page, **query), browser.json(page, **query)

        assert (shown.status_code, shown.headers["content-type"]) == (200, "text/html; charset=utf-8")
        assert re.search(r"<h1>.+</h1>", shown.text) is not None
        assert document["skipped"] == []


def test_every_link_of_every_page_leads_to_a_page(browser):
    seen: set[str] = set()
    waiting = ["/"]
    while waiting and len(seen) < 60:
        page = waiting.pop(0)
        response = browser.send("GET", page)
        assert response.status_code == 200, page
        seen.add(page)
        links = re.findall(r'href="(/[^"]*)"', response.text)
        found = [each.replace("&amp;", "&").partition("#")[0] for each in links]
        # The newest links first, so that all kinds of pages are among the first sixty.
        waiting = [each for each in dict.fromkeys([*found[::7], *waiting]) if each not in seen]


def test_the_overview_sums_up(browser):
    found = browser.json("")

    assert [(each["handler"], each["objects"]) for each in found["handlers"]] == [
        ("LeaderBoard", 8),
        ("ShootingRange", 8),
    ]
    assert [each["batch_id"] for each in found["batches"]] == [f"night-{night}" for night in range(1, 6)]
    assert found["reasons"] == {"invalid_body": 5, "unknown_type": 5}


def test_a_batch_has_its_counts_and_outcomes(browser):
    found = browser.json("batch", id="night-3", status="dead_letter", reason="unknown_type")

    assert found["counts"]["dead_letter"] == sum(
        each["count"] for each in found["kinds"] if each["status"] == "dead_letter"
    )
    assert [each["message_id"] for each in found["outcomes"]] == ["strange-2"]
    assert browser.json("batch", id="night-1")["publications"][0]["slices_sent"] == 2


def test_objects_are_found_by_handler_and_prefix(browser):
    found = browser.json("objects", handler="ShootingRange", prefix=GAME[:-1])

    assert [each["business_id"][-1] for each in found["objects"]] == list("12345678")
    assert browser.json("objects", prefix="nobody")["objects"] == []


@pytest.mark.parametrize("order", ["versions", "state size", "waiting letters", "newest"])
def test_objects_may_have_another_order(browser, order):
    key = {"state size": "state_bytes", "waiting letters": "letters"}.get(order, order)
    values = [each[key] for each in browser.json("objects", order=order)["objects"]]

    assert values == sorted(values, reverse=True)


def test_a_version_is_described_as_the_command_line_does(browser, explored):
    kept = drive(versions(explored.table, "ShootingRange", GAME)) or []
    for version in (kept[0], kept[len(kept) // 2], kept[-1]):
        found = browser.json("object", **OBJECT, version=version.number)

        assert found["version"] == json.loads(browser_json(describe_version(version, whole=True, diff=True)))
        around = [each["version"] for each in found["versions"]]
        assert around == [each for each in range(kept[-1].number, 0, -1) if abs(each - version.number) <= 12]


def browser_json(document):
    return json.dumps(document, default=lambda time: time.isoformat().replace("+00:00", "Z"))


def test_an_object_as_of_a_time_has_the_version_of_that_time(browser):
    newest = browser.json("object", **OBJECT)["newest_version"]
    for number in (1, newest // 2, newest):
        time = browser.json("object", **OBJECT, version=number)["version"]["now"]
        assert browser.json("object", **OBJECT, at=time)["version"]["version"] == number

    assert browser.get("object", **OBJECT, at="2020-01-01T00:00:00").status_code == 404
    assert browser.get("object", **OBJECT, at="soon").status_code == 400


def test_a_message_has_its_outcomes_versions_and_causes(browser):
    outcomes = browser.json("batch", id="night-5")["outcomes"]
    made = next(each for each in outcomes if each["outputs"])
    cause, output = made["message_id"], made["outputs"][0]["message_id"]

    found, below = browser.json("message", id=cause), browser.json("message", id=output)

    assert [(each["batch_id"], each["status"]) for each in found["outcomes"]] == [("night-5", "processed")]
    assert [each["version"] for each in found["versions"]] == [made["version"]]
    assert {each["id"]: each["level"] for each in found["graph"]} == {cause: 0, output: 1}
    assert {each["id"]: each["level"] for each in below["graph"]} == {cause: -1, output: 0}
    assert next(each for each in below["graph"] if each["id"] == output)["causes"] == [cause]


def test_dead_letters_are_grouped_and_shown_with_their_body(browser):
    found = browser.json("letters", reason="invalid_body")
    letter = found["letters"][0]
    whole = browser.json("letter", handler=letter["handler"], id=letter["stream"], letter=letter["letter"])

    assert [(each["reason"], each["count"]) for each in found["groups"]] == [
        ("invalid_body", 5),
        ("unknown_type", 5),
    ]
    assert len(found["letters"]) == 5
    assert json.loads(whole["body"])["position"] == "far"
    assert "Why it was refused" in browser.get("message", id="strange-1").text


@pytest.mark.parametrize(
    ("page", "query"),
    [
        ("batch", {"id": "no-night"}),
        ("object", {"handler": "ShootingRange", "id": "nobody"}),
        ("object", {"handler": "ShootingRange", "id": GAME, "version": 99_999}),
        ("letter", {"handler": "ShootingRange", "id": GAME, "letter": 999}),
        ("letter", {"letter": "none"}),
    ],
)
def test_a_missing_object_batch_or_dead_letter_is_not_found(browser, page, query):
    assert browser.get(page, **query).status_code == 404


def test_one_value_can_be_read_as_text(browser):
    found = browser.json("object", **OBJECT)
    response = browser.get("object", **OBJECT, text="version/after")

    assert response.headers["content-type"] == "text/plain; charset=utf-8"
    assert json.loads(response.text) == found["version"]["after"]
    assert browser.get("object", **OBJECT, text="version/nothing").status_code == 404


def test_an_empty_table_has_its_pages(tmp_path, open_explorer):
    browser = open_explorer(Explored(tmp_path))

    for page in ("", "batches", "objects", "letters", "publications", "message"):
        assert browser.get(page).status_code == 200


def test_a_corrupt_stream_is_skipped_and_named(tmp_path, open_explorer):
    explored = played(tmp_path, games=2, nights=1, shots=4)
    spoil = Operation.merge("SS-HEAD", {"StateVersions": "many"})
    drive(explored.table.transact(f"ShootingRange-{GAME}", [spoil]))

    found = open_explorer(explored).json("objects")

    assert len(found["objects"]) == 3
    assert GAME in found["skipped"][0]


def test_no_page_and_no_replay_writes(explored, browser, monkeypatch):
    table = read_only(explored.table)
    for call in (table.transact("a", [Operation.insert("b", {})]), table.barrier()):
        with pytest.raises(UsageError):
            drive(call)

    async def write(table, *_):
        await table.transact("a", [Operation.insert("b", {})])

    with monkeypatch.context() as patched:
        patched.setattr(reading, "publications", write)
        assert "The explorer cannot write to this table" in browser.get("publications").text

    async def refuse(*_):
        raise AssertionError("a page has written")

    queries = paths(browser)
    monkeypatch.setattr(type(explored.table), "transact", refuse)
    monkeypatch.setattr(type(explored.table), "barrier", refuse)

    assert {browser.get(page, **query).status_code for page, query in queries.items()} == {200}
    assert replayed(browser, 1)[0] == 200


def replayed(browser, version, **fields):
    """Replay a version of the first game, and return the status and the answer."""
    csrf = browser.explorer._access.csrf
    response = browser.post("replay", {"csrf": csrf, **OBJECT, "version": version, **fields})
    return response.status_code, response.text


def test_a_version_is_replayed_with_the_current_handlers(browser):
    version = browser.json("object", **OBJECT, version=1)["version"]
    body = json.dumps({"game_id": GAME, "position": version["after"]["target_position"]})

    assert "the same state and the same outputs" in replayed(browser, 1, body=body)[1]
    assert "id reused" in replayed(browser, 1, body=body.replace("40", "41"))[1]

    assert "paste it into the form" in replayed(browser, 1)[1]
    of_output = replayed(browser, 1, handler="LeaderBoard", body="")[1]
    assert "the outcomes of its batch" in of_output
    missing = ((99_999, "ShootingRange"), (1, "Nobody"), ("x", "ShootingRange"))
    statuses = [replayed(browser, version, handler=handler)[0] for version, handler in missing]
    assert statuses == [404, 404, 400]


def test_attributes_of_templates_hold_no_marks():
    """Marks of hidden characters are elements, which would end an attribute."""
    templates = Path(__file__).parents[3] / "runtime" / "explore" / "templates"
    allowed = re.compile(
        r"link\(|here\(|\|raw|\|flat|\|round|is_selected|node\.level|\|max$|loop\."
        r"|^(href|back|csrf|count|each\.slices(_sent)?|kept_from|newest_version|version\.version)$|^'page'"
    )
    for file in templates.glob("*.html"):
        for inner in re.findall(r'="[^"{}]*\{\{ (.+?) \}\}', file.read_text()):
            assert allowed.search(inner), f"{file.name}: {inner}"


def cascaded_apart(explored):
    """Handle messages and their outputs in batches of their own, and return a message with its two descendants."""
    (first,) = explored.batch([fire(1, 1, 40, "StartNewRound")], rounds=1)
    shots = explored.batch([fire(number, 1, 40) for number in (2, 3)], rounds=1)
    hits = [output.envelope() for outcome in shots for output in outcome.outputs]
    explored.batch([fire(4, 2, 40, "StartNewRound")], rounds=1)
    explored.batch(hits, rounds=1)
    return first, shots, hits


def test_causes_and_outputs_are_found_in_other_batches(tmp_path, open_explorer):
    explored = Explored(tmp_path)
    _, shots, hits = cascaded_apart(explored)
    browser = open_explorer(explored)
    cause, output = shots[0].envelope.message_id, hits[0].message_id

    for id_, batch in ((cause, "night-2"), (output, "night-4"), (cause, ""), (output, "")):
        found = browser.json("message", id=id_, batch=batch)
        nodes = {each["id"]: (each["level"], each["batch"]) for each in found["graph"]}
        level = 0 if id_ == cause else -1
        assert nodes == {cause: (level, "night-2"), output: (level + 1, "night-4")}
        assert found["limits"] == []
        assert found["window"] == ["night-4", "night-1"]


def join_parts(explored, batch, **how):
    """Write the outcomes of the first round of a batch into one file."""
    first, *others = (Path(explored.out) / f"batch_id={batch}" / "round=0").glob("*.parquet")
    pq.write_table(pa.concat_tables(map(pq.read_table, (first, *others))), first, **how)
    for file in others:
        file.unlink()


def test_a_graph_says_where_it_is_cut(tmp_path, open_explorer, monkeypatch):
    explored = Explored(tmp_path)
    _, shots, hits = cascaded_apart(explored)
    for number in range(1, 5):
        join_parts(explored, f"night-{number}")
    browser = open_explorer(explored)
    monkeypatch.setattr(reading, "_MOST", reading._PER_PART + 2)
    monkeypatch.setattr(Part, "may_have", lambda *_: True)

    found = browser.json("message", id=hits[0].message_id, batch="night-4")
    below = browser.get("message", id=shots[0].envelope.message_id, batch="night-2").text

    assert found["graph"] == []
    assert found["limits"] == ["Causes are searched as far as batch night-2, round 0."]
    assert "Outputs are searched as far as batch night-4, round 0." in below
    monkeypatch.undo()
    monkeypatch.setattr(reading, "_BREADTH", 0)
    id_ = shots[0].envelope.message_id
    assert f"Outputs of {id_}: 0 of 1." in browser.json("message", id=id_)["limits"]


def test_a_search_continues_where_it_stopped(tmp_path, open_explorer, monkeypatch):
    explored = Explored(tmp_path)
    explored.batch([fire(game, game, 40, "StartNewRound") for game in range(1, 9)], rounds=1)
    for number in range(1, 4):
        explored.batch([fire(game, game, 40, "StartNewRound") for game in range(1, 9)], rounds=1)
        join_parts(explored, f"night-{number + 1}", row_group_size=2)
    monkeypatch.setattr(reading, "_MOST", 3 * (reading._PER_PART + 2))
    monkeypatch.setattr(Part, "may_have", lambda *_: True)
    browser, query, statuses = open_explorer(explored), {"id": fire(1, 1, 1).message_id}, []
    for _ in range(20):
        found = browser.json("message", **query)
        statuses += [(each["batch_id"], each["status"]) for each in found["outcomes"]]
        page = browser.get("message", **query).text
        links = re.findall(r'href="/(message[^"]*)">Search (?:the rest|older)', page)
        if found["rest"] is None and found["next"] in (None, "night-1"):
            break
        query = dict(parse_qsl(html.unescape(links[-1]).partition("?")[2]))

    assert statuses == [
        ("night-4", "duplicate"), ("night-3", "duplicate"), ("night-2", "duplicate"), ("night-1", "processed")
    ]  # fmt: skip


def test_the_overview_continues_after_its_first_objects(tmp_path, open_explorer, monkeypatch):
    explored = Explored(tmp_path)
    explored.batch([fire(game, game, 40) for game in range(1, 6)])
    monkeypatch.setattr(port, "PAGE_SIZE", 2)
    browser, after, counted = open_explorer(explored), "", []
    while after is not None:
        found = browser.json("", after=after)
        (shots,) = [each for each in found["handlers"] if each["handler"] == "ShootingRange"]
        counted.append(shots["objects"])
        after = shots["next"]

    assert (counted[0], sum(counted)) == (2, 5)
    shown = browser.get("").text
    assert "next 1,000 objects" in shown
    assert "+ marks figures of 1,000 objects of a handler, which has more" in shown


def test_an_order_of_some_objects_says_so(tmp_path, open_explorer, monkeypatch):
    explored = Explored(tmp_path)
    explored.batch([fire(game, game, 40) for game in range(1, 6)])
    monkeypatch.setattr(reading, "WINDOW", 3)
    browser = open_explorer(explored)

    first = browser.get("objects", handler="ShootingRange", order="versions")
    after = browser.json("objects", handler="ShootingRange", order="versions")["next"]
    second = browser.get("objects", handler="ShootingRange", order="versions", after=after)

    assert "Others may be above them" in first.text
    assert "Others may be above them" in second.text
    monkeypatch.setattr(reading, "WINDOW", 100)
    assert "Not the whole table" not in browser.get("objects", order="versions").text


@pytest.mark.parametrize("algorithm", ["outbox", "deduplication-store", "tokens"])
def test_an_outbox_without_batches_is_named(tmp_path, open_explorer, algorithm):
    explored = Explored(tmp_path)

    async def publish(_):
        """Publish nothing."""

    drive(Processor(explored.app, explored.table, publish, algorithm=algorithm).process(fire(1, 1, 40)))

    assert open_explorer(explored).json("")["algorithm"] == algorithm


@pytest.mark.parametrize("page", ["object", "objects", "letter", "message"])
def test_a_long_key_is_a_usage_error_and_the_batch_may_be_of_a_consumer(browser, page):
    keys = dict.fromkeys(("id", "prefix", "letter", "object"), "x" * 1100)

    assert browser.get(page, handler="ShootingRange", **keys).status_code in {200, 400, 404}
    of_consumer = {"id": "m1", "batch": "@topic/1", "handler": "ShootingRange", "object": GAME}
    assert browser.get("message", **of_consumer).status_code == 200


def test_outcomes_with_a_filter_are_read_part_by_part(tmp_path, open_explorer, monkeypatch):
    explored = played(tmp_path, games=4, nights=1, shots=40)
    (file, *_) = (Path(explored.out) / "batch_id=night-1" / "round=0").glob("*.parquet")
    pq.write_table(pq.read_table(file), file, row_group_size=3)
    monkeypatch.setattr(reading, "_PARTS", 2)
    browser, after, ids, pages = open_explorer(explored), "", [], 0
    while after is not None:
        found = browser.json("batch", id="night-1", status="dead_letter", after=after)
        ids += [each["message_id"] for each in found["outcomes"]]
        after, pages = found["next"], pages + 1

    assert (sorted(ids), pages > 5) == (["broken-0", "strange-0"], True)
    rounds = found["deliveries_by_round"]
    assert sum(rounds.values()) == found["messages"]
    assert len(rounds) == found["rounds"] == 2


@pytest.mark.parametrize("after", ["1", "-1.0", "0.-1", "x.y", "9" * 30 + ".0"])
def test_an_invalid_position_among_outcomes_is_refused(browser, after):
    assert browser.get("batch", id="night-1", after=after).status_code == 400


def test_a_damaged_file_of_outcomes_is_reported(tmp_path, open_explorer):
    explored = played(tmp_path, games=2, nights=2, shots=4)
    (file, *_) = (Path(explored.out) / "batch_id=night-1" / "round=0").glob("*.parquet")
    file.write_bytes(file.read_bytes()[:-9])
    browser = open_explorer(explored)

    found = browser.json("message", id="broken-0")

    assert [each["is_readable"] for each in found["searched"]] == [True, False]
    assert "(outcomes are not readable here)" in browser.get("message", id="broken-0").text
    assert browser.json("batch", id="night-1")["has_files"] is False
