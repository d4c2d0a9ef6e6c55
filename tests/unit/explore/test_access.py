"""Only who has the token may look, under a name of this machine, and forms come from these pages only."""

import html
import json
import re

import pytest

from eventstore import drive
from runtime import Processor, Reason
from runtime.dead_letters import Selection, find_letters
from samples.shooting_range import app as shooting_range
from tests.support.explored import GAME, fire, played

LETTER = {"handler": "ShootingRange", "id": GAME, "letter": "1"}


def named(*letters):
    """Return the field of a form that names letters by handler, business id and name."""
    return {"letters": json.dumps(letters)}


FORM = named(["ShootingRange", GAME, "1"])
CSP = "default-src 'none'; style-src 'self'; script-src 'self'"


def test_the_token_of_the_url_becomes_a_cookie(explored, open_explorer):
    browser = open_explorer(explored, token="secret-token")

    assert browser.get("batches").status_code == 403
    entered = browser.get("batches", token="secret-token", after="")

    assert (entered.status_code, entered.headers["location"]) == (303, "./batches?after=")
    cookie = entered.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert "secret-token" not in cookie
    page = browser.get("batches")
    assert page.status_code == 200
    assert "secret-token" not in page.text


def test_a_token_is_random_by_default(explored, open_explorer):
    one, other = (open_explorer(explored, token=None).explorer for _ in range(2))

    assert len(one.token) >= 32
    assert one.token != other.token


@pytest.mark.parametrize("token", ["", "wrong", "secret-token2", "sécret"])
def test_a_wrong_token_opens_nothing(explored, open_explorer, token):
    browser = open_explorer(explored, token="secret-token")

    assert browser.get("", token=token).status_code == 403
    assert browser.send("GET", "/", headers={"authorization": f"Bearer {token}".encode()}).status_code == 403


def test_a_program_may_send_the_token_as_a_header(explored, open_explorer):
    browser = open_explorer(explored, token="secret-token")

    response = browser.send("GET", "/batches?format=json", headers={"authorization": "Bearer secret-token"})

    assert response.json()["batches"][0]["batch_id"] == "night-5"


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example:80", "", "[::1", "a@b"]
)
def test_a_foreign_host_is_refused(browser, host):
    assert browser.send("GET", "/", headers={"host": host}).status_code == 421


@pytest.mark.parametrize("host", ["localhost", "localhost:8765", "127.0.0.1:1", "[::1]:8765", "LOCALHOST"])
def test_names_of_this_machine_are_not(browser, host):
    assert browser.send("GET", "/", headers={"host": host}).status_code == 200


def test_other_hosts_can_be_named(explored, open_explorer):
    browser = open_explorer(explored, hosts=["explorer.example"])

    assert browser.send("GET", "/", headers={"host": "explorer.example"}).status_code == 200


def test_every_answer_has_the_headers_of_security(browser):
    for url in ("/", "/static/explore.css", "/nothing", "/?format=json"):
        headers = browser.send("GET", url).headers
        assert headers["content-security-policy"].startswith(CSP)
        assert "unsafe-inline" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"


def csrf_of(browser):
    found = re.search(r'name="csrf" value="(\w+)"', browser.get("letter", **LETTER, confirm="discard").text)
    assert found is not None
    return found[1]


def letters(explored):
    async def found():
        return [each async for each in find_letters(explored.table, Selection(handler="ShootingRange"))]

    return drive(found())


@pytest.fixture
def changed(tmp_path):
    return played(tmp_path, games=2, nights=1, shots=4)


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://localhost:1"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": "none"},
    ],
)
def test_forms_of_other_sites_change_nothing(changed, open_explorer, headers):
    browser = open_explorer(changed, allow_changes=True)

    response = browser.post("discard", {"csrf": csrf_of(browser), **FORM}, **headers)

    assert response.status_code == 403
    assert len(letters(changed)) == 1


@pytest.mark.parametrize("csrf", ["", "0" * 64, None])
def test_a_form_without_the_secret_changes_nothing(changed, open_explorer, csrf):
    browser = open_explorer(changed, allow_changes=True)

    fields = dict(FORM) if csrf is None else {"csrf": csrf, **FORM}

    assert browser.post("discard", fields).status_code == 400
    assert len(letters(changed)) == 1


@pytest.mark.parametrize("deed", ["discard", "redrive"])
def test_without_allow_changes_nothing_changes(changed, open_explorer, deed):
    browser = open_explorer(changed)
    allowed = open_explorer(changed, allow_changes=True)
    browser.explorer._access._key = allowed.explorer._access._key
    browser.explorer._access.csrf = allowed.explorer._access.csrf

    assert "confirm=" not in browser.get("letter", **LETTER).text
    assert browser.post(deed, {"csrf": csrf_of(allowed), **FORM}).status_code == 400
    assert len(letters(changed)) == 1


def test_a_deed_is_no_link(changed, open_explorer):
    browser = open_explorer(changed, allow_changes=True)

    assert browser.get("discard", **LETTER).status_code == 405
    assert len(letters(changed)) == 1


def test_a_dead_letter_is_discarded_after_it_was_confirmed(changed, open_explorer):
    browser = open_explorer(changed, allow_changes=True)

    response = browser.post("discard", {"csrf": csrf_of(browser), **FORM}, origin="http://localhost")

    assert (response.status_code, response.headers["location"]) == (303, "/letters?done=1")
    assert letters(changed) == []
    assert browser.post("discard", {"csrf": csrf_of_any(browser), **FORM}).status_code == 404


def test_one_of_several_dead_letters_with_one_id_is_discarded(changed, open_explorer):
    async def refuse() -> None:
        processor = Processor(shooting_range, changed.table, publish)
        for position, reason in [(40, None), *[(each, Reason.ID_REUSED) for each in (41, 42, 43)]]:
            (outcome,) = await processor.process(fire(1, 1, position))
            assert outcome.reason is reason

    async def publish(_: object) -> None: ...

    drive(refuse())
    browser = open_explorer(changed, allow_changes=True)
    before = [each for each in browser.json("letters")["letters"] if each["reason"] == "id_reused"]
    chosen = named([before[0]["handler"], before[0]["stream"], before[0]["letter"]])

    browser.post("discard", {"csrf": csrf_of_any(browser), **chosen})

    after = [each for each in browser.json("letters")["letters"] if each["reason"] == "id_reused"]
    assert [each["letter"] for each in after] == [each["letter"] for each in before[1:]]
    assert len(after) == 2


def csrf_of_any(browser):
    return browser.explorer._access.csrf


def test_a_letter_of_the_table_is_discarded_alone(changed, open_explorer):
    browser = open_explorer(changed, allow_changes=True)
    rows = [each for each in browser.json("letters")["letters"] if not each["stream"]]

    browser.post("discard", {"csrf": csrf_of(browser), **named(["", "", rows[0]["letter"]])})

    assert [each["reason"] for each in browser.json("letters")["letters"]] == ["invalid_body"]


def test_a_dead_letter_is_redriven_as_a_batch(changed, open_explorer):
    redriven: list[object] = []

    async def redrive(found):
        redriven.extend((each.handler, each.letter.message_id) for each in found)
        return "redrive-1"

    browser = open_explorer(changed, allow_changes=True, redrive=redrive)
    response = browser.post("redrive", {"csrf": csrf_of(browser), **FORM})

    assert (response.status_code, response.headers["location"]) == (303, "/batch?id=redrive-1")
    assert redriven == [("ShootingRange", "broken-0")]


def test_redriving_needs_an_app_and_a_folder(changed, open_explorer):
    browser = open_explorer(changed, allow_changes=True)

    assert "Redriving here needs --app and --out" in browser.get("letter", **LETTER).text
    assert browser.post("redrive", {"csrf": csrf_of(browser), **FORM}).status_code == 400


def test_a_large_form_is_refused(browser):
    response = browser.post("replay", {"csrf": csrf_of_any(browser), "body": "x" * (5 * 2**20)})

    assert response.status_code == 400


@pytest.mark.parametrize("letters", ["", "{}", "[1]", '[["a"]]', '[["ShootingRange", ["x"], null]]', "[]"])
def test_a_form_that_names_no_letter_changes_nothing(changed, open_explorer, letters):
    browser = open_explorer(changed, allow_changes=True)

    response = browser.post("discard", {"csrf": csrf_of(browser), "letters": letters})

    assert response.status_code in {400, 404}


def refused_alike(explored, ids):
    """Add a dead letter for each id, in two streams, with the error of the one that is there."""
    explored.batch(
        [
            each._replace(body=str(each.body).replace(": 40", ': "x"'))
            for each in (fire(id_, 1 + id_ % 2, 40) for id_ in ids)
        ]
    )


def group_of(browser, reason):
    (group,) = [each for each in browser.json("letters")["groups"] if each["reason"] == reason]
    return group


def form_of(page):
    """Return the fields of the form on a page, as a browser reads them."""
    fields = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', page.text)
    return {name: html.unescape(value) for name, value in fields}


@pytest.fixture
def grouped(changed):
    refused_alike(changed, range(50, 57))
    return changed


def test_a_group_is_discarded_after_it_was_confirmed(grouped, open_explorer):
    browser = open_explorer(grouped, allow_changes=True)
    group = group_of(browser, "invalid_body")
    chosen = browser.json("letters", group=group["group"])
    assert (len(chosen["letters"]), chosen["confirm"], group["count"]) == (8, None, 8)

    page = browser.get("letters", group=group["group"], confirm="discard")
    assert "Discard these 8 dead letters?" in page.text
    assert group_of(browser, "invalid_body")["count"] == 8
    response = browser.post("discard", form_of(page))

    assert (response.status_code, response.headers["location"]) == (303, "/letters?done=8")
    assert "8 dead letters were discarded." in browser.get("letters", done=8).text
    assert [each["reason"] for each in browser.json("letters")["groups"]] == ["unknown_type"]
    assert browser.post("discard", form_of(page)).status_code == 404


def test_letters_that_come_meanwhile_are_not_changed(grouped, open_explorer):
    browser = open_explorer(grouped, allow_changes=True)
    page = browser.get("letters", group=group_of(browser, "invalid_body")["group"], confirm="discard")
    refused_alike(grouped, [60])

    browser.post("discard", form_of(page))

    assert group_of(browser, "invalid_body")["count"] == 1


def test_a_group_is_redriven_as_one_batch(grouped, open_explorer):
    redriven: list[object] = []

    async def redrive(found):
        redriven.append({each.letter.message_id for each in found})
        return "redrive-1"

    browser = open_explorer(grouped, allow_changes=True, redrive=redrive)
    group = group_of(browser, "invalid_body")["group"]

    response = browser.post("redrive", form_of(browser.get("letters", group=group, confirm="redrive")))

    assert response.headers["location"] == "/batch?id=redrive-1"
    assert redriven == [{each["message_id"] for each in browser.json("letters", group=group)["letters"]}]


def test_a_group_cannot_be_changed_unless_that_is_allowed(grouped, open_explorer):
    browser = open_explorer(grouped)
    group = group_of(browser, "invalid_body")["group"]

    page = browser.get("letters", group=group, confirm="discard")

    assert (form_of(page), "Discard" in page.text) == ({}, False)


@pytest.mark.parametrize("keys", [{"token": "", "secret": "shared"}, {"token": "shared"}])
def test_several_processes_share_a_secret(changed, open_explorer, keys):
    one, other = (open_explorer(changed, allow_changes=True, **keys) for _ in range(2))
    foreign = open_explorer(changed, allow_changes=True)
    for browser in (one, other):
        browser.get("", token="shared")
        other.cookies = one.cookies

    response = foreign.post("discard", form_of(one.get("letter", **LETTER, confirm="discard")))
    assert "The form is outdated" in response.text
    assert other.post("discard", form_of(one.get("letter", **LETTER, confirm="discard"))).status_code == 303
