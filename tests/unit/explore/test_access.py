"""Only requests with the token, to a name of this machine, are answered; forms must come from the explorer's pages."""

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
CSP = "default-src 'none'; style-src 'self'; script-src 'self'"


def named(*letters):
    """Return the field of a form that names letters by handler, business id and name."""
    return {"letters": json.dumps(letters)}


FORM = named(["ShootingRange", GAME, "1"])


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
    assert (page.status_code, "secret-token" in page.text) == (200, False)


def test_a_program_may_send_the_token_as_a_header(explored, open_explorer):
    browser = open_explorer(explored, token="secret-token")

    response = browser.send("GET", "/batches?format=json", headers={"authorization": "Bearer secret-token"})

    assert response.json()["batches"][0]["batch_id"] == "night-5"


@pytest.mark.parametrize("token", ["", "wrong", "secret-token2", "sécret"])
def test_a_wrong_token_opens_nothing(explored, open_explorer, token):
    browser = open_explorer(explored, token="secret-token")

    assert browser.get("", token=token).status_code == 403
    assert browser.send("GET", "/", headers={"authorization": f"Bearer {token}".encode()}).status_code == 403


def test_a_token_is_random_by_default(explored, open_explorer):
    one, other = (open_explorer(explored, token=None).explorer for _ in range(2))

    assert len(one.token) >= 32
    assert one.token != other.token


@pytest.mark.parametrize(
    ("host", "status"),
    [
        *((host, 421) for host in ("evil.example", "localhost.evil.example", "127.0.0.1.evil.example:80")),
        *((host, 421) for host in ("", "[::1", "a@b")),
        *((host, 200) for host in ("localhost", "localhost:8765", "127.0.0.1:1", "[::1]:8765", "LOCALHOST")),
        ("explorer.example", 200),
    ],
)
def test_only_names_of_this_machine_and_given_hosts_are_answered(explored, open_explorer, host, status):
    browser = open_explorer(explored, hosts=["explorer.example"])

    assert browser.send("GET", "/", headers={"host": host}).status_code == status


def test_every_answer_has_the_headers_of_security(browser):
    for url in ("/", "/static/explore.css", "/nothing", "/?format=json"):
        headers = browser.send("GET", url).headers
        assert headers["content-security-policy"].startswith(CSP)
        assert "unsafe-inline" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"


@pytest.fixture
def changed(tmp_path):
    return played(tmp_path, games=2, nights=1, shots=4)


@pytest.fixture
def allowed(changed, open_explorer):
    """Return a browser of an explorer that allows changes. A redrive appends message ids to `redriven`."""
    redriven = []

    async def redrive(found):
        redriven.append({each.letter.message_id for each in found})
        return "redrive-1"

    browser = open_explorer(changed, allow_changes=True, redrive=redrive)
    browser.redriven = redriven
    return browser


def letters(explored):
    async def found():
        return [each async for each in find_letters(explored.table, Selection(handler="ShootingRange"))]

    return drive(found())


def form_of(page):
    """Return the fields of the form on a page, as a browser reads them."""
    fields = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', page.text)
    return {name: html.unescape(value) for name, value in fields}


def csrf_of(browser):
    return form_of(browser.get("letter", **LETTER, confirm="discard"))["csrf"]


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
def test_forms_of_other_sites_change_nothing(changed, allowed, headers):
    response = allowed.post("discard", {"csrf": csrf_of(allowed), **FORM}, **headers)

    assert response.status_code == 403
    assert len(letters(changed)) == 1


@pytest.mark.parametrize("csrf", ["", "0" * 64, None])
def test_a_form_without_the_secret_and_a_link_change_nothing(changed, allowed, csrf):
    fields = dict(FORM) if csrf is None else {"csrf": csrf, **FORM}

    assert allowed.post("discard", fields).status_code == 400
    assert allowed.get("discard", **LETTER).status_code == 405
    assert len(letters(changed)) == 1


@pytest.mark.parametrize("deed", ["discard", "redrive"])
def test_without_allow_changes_nothing_changes(changed, allowed, open_explorer, deed):
    browser = open_explorer(changed)
    browser.explorer._access._key = allowed.explorer._access._key
    browser.explorer._access.csrf = allowed.explorer._access.csrf

    assert "confirm=" not in browser.get("letter", **LETTER).text
    key = browser.json("letters")["groups"][0]["group"]
    assert form_of(browser.get("letters", group=key, confirm=deed)) == {}
    assert browser.post(deed, {"csrf": csrf_of(allowed), **FORM}).status_code == 400
    assert len(letters(changed)) == 1


def test_one_of_several_dead_letters_with_one_id_is_discarded(changed, allowed):
    async def refuse() -> None:
        processor = Processor(shooting_range, changed.table, publish)
        for position, reason in [(40, None), *[(each, Reason.ID_REUSED) for each in (41, 42, 43)]]:
            (outcome,) = await processor.process(fire(1, 1, position))
            assert outcome.reason is reason

    async def publish(_: object) -> None: ...

    def reused():
        return [each for each in allowed.json("letters")["letters"] if each["reason"] == "id_reused"]

    drive(refuse())
    first, *others = reused()
    allowed.post(
        "discard", {"csrf": csrf_of(allowed), **named([first["handler"], first["stream"], first["letter"]])}
    )

    assert [each["letter"] for each in reused()] == [each["letter"] for each in others]
    assert len(others) == 2


def test_a_dead_letter_of_the_table_is_discarded_alone(allowed):
    (row,) = [each for each in allowed.json("letters")["letters"] if not each["stream"]]

    allowed.post("discard", {"csrf": csrf_of(allowed), **named(["", "", row["letter"]])})

    assert [each["reason"] for each in allowed.json("letters")["letters"]] == ["invalid_body"]


def test_redriving_needs_an_app_and_a_folder(changed, open_explorer):
    browser = open_explorer(changed, allow_changes=True)

    assert "Redriving here needs --app and --out" in browser.get("letter", **LETTER).text
    assert browser.post("redrive", {"csrf": csrf_of(browser), **FORM}).status_code == 400


@pytest.mark.parametrize(
    "given", ["", "{}", "[1]", '[["a"]]', '[["ShootingRange", ["x"], null]]', "[]", "x" * (5 * 2**20)]
)
def test_a_form_without_letters_or_of_many_bytes_changes_nothing(allowed, given):
    response = allowed.post("discard", {"csrf": csrf_of(allowed), "letters": given})

    assert response.status_code in {400, 404}


def refuse_alike(explored, ids):
    """Add a dead letter for each id, in two streams, with the error of the existing one."""
    messages = [fire(id_, 1 + id_ % 2, 40) for id_ in ids]
    explored.batch([each._replace(body=str(each.body).replace(": 40", ': "x"')) for each in messages])


@pytest.fixture
def group(changed, allowed):
    """Add seven dead letters of one group. Return a function that describes the group."""
    refuse_alike(changed, range(50, 57))

    def described():
        (found,) = [each for each in allowed.json("letters")["groups"] if each["reason"] == "invalid_body"]
        return found

    return described


def test_a_confirmed_group_is_discarded_without_later_dead_letters(changed, allowed, group):
    key = group()["group"]
    chosen = allowed.json("letters", group=key)
    assert (len(chosen["letters"]), chosen["confirm"], group()["count"]) == (8, None, 8)

    page = allowed.get("letters", group=key, confirm="discard")
    assert "Discard these 8 dead letters?" in page.text
    assert group()["count"] == 8
    refuse_alike(changed, [60])
    response = allowed.post("discard", form_of(page), origin="http://localhost")

    assert (response.status_code, response.headers["location"]) == (303, "/letters?done=8")
    assert "8 dead letters were discarded." in allowed.get("letters", done=8).text
    assert group()["count"] == 1
    assert allowed.post("discard", form_of(page)).status_code == 404


def test_a_group_is_redriven_as_one_batch(allowed, group):
    key = group()["group"]

    response = allowed.post("redrive", form_of(allowed.get("letters", group=key, confirm="redrive")))

    assert response.headers["location"] == "/batch?id=redrive-1"
    assert allowed.redriven == [
        {each["message_id"] for each in allowed.json("letters", group=key)["letters"]}
    ]


@pytest.mark.parametrize("keys", [{"token": "", "secret": "shared"}, {"token": "shared"}])
def test_several_processes_share_a_secret(changed, open_explorer, keys):
    one, other = (open_explorer(changed, allow_changes=True, **keys) for _ in range(2))
    foreign = open_explorer(changed, allow_changes=True)
    for browser in (one, other):
        browser.get("", token="shared")
        other.cookies = one.cookies

    form = form_of(one.get("letter", **LETTER, confirm="discard"))
    assert "The form is outdated" in foreign.post("discard", form).text
    assert other.post("discard", form).status_code == 303
