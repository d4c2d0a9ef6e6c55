"""Text of senders is shown as text: without markup, without hidden characters, and of limited length."""

import json
import re
from html.parser import HTMLParser

import pytest

from eventstore import drive
from handlers import App, Context, Handler, Message, State, handles
from runtime import Envelope, Processor
from runtime.ledger.ledger import Ledger
from tests.support.explored import Explored


class Note(Message):
    of: str
    text: str


class Noted(Message):
    of: str
    text: str


class Notes(State):
    text: str = ""


class Book(Handler[Notes]):
    """Notes, which may say anything."""

    @handles(by="of")
    def note(self, state: Notes, message: Note, context: Context) -> Notes:
        if message.text.startswith("fail"):
            raise ValueError(message.text)
        context.capture("heard", lambda: message.text)
        context.publish(Noted(of=message.of, text=message.text), headers={"said": message.text[:50]})
        return Notes(text=message.text)


NOTES = App(Book)
HOSTILE = {
    "a script": "<script>alert(1)</script>",
    "an attribute": "\"><img src=x onerror=alert(1)> ' onmouseover=alert(1)",
    "a template": "{{ 7*7 }}{% for x in y %}${7*7}",
    "a url": "javascript:alert(1)//../../%2e%2e/?token=x#&handler=other",
    "an entity": "&lt;b&gt;&#x202e;&amp;",
    "a closing tag": "</pre></td></table></title><svg onload=alert(1)>",
    "bidi": "user\u202egnp.exe\u2066\u2069",
    "controls": "bell\x07escape\x1b[2Jnull\x00\x9b",
    "lines": "one\ntwo\r\nthree\u2028four",
    "hidden": "zero\u200bwidth\ufeff\u00adsoft\U000e0041",
    "a comment": "<!-- --><![CDATA[",
}
LINKS = ("href", "src", "action", "formaction")


class Seen(HTMLParser):
    """Collects the elements of a page, and the attributes that a browser would run."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.dangers = set(), []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        for name, value in attributes:
            is_script = name in LINKS and (value or "").lower().strip().startswith("javascript:")
            if is_script or name.startswith("on") or name == "style":
                self.dangers.append((name, value))
        if tag == "script" and dict(attributes) != {"src": "/static/explore.js", "defer": None}:
            self.dangers.append((tag, attributes))


OWN = set(
    re.findall(
        r"\w+",
        "html head meta title link script body a header div span nav ul li main footer h1 h2 p section "
        "figure figcaption svg g rect circle line path text table caption thead tbody tr th td dl dt dd "
        "form label input select option button textarea details summary pre code mark time meter strong b output",
    )
)
HIDDEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200b\u202a-\u202e\u2028\u2066-\u2069\ufeff\u00ad\U000e0041]"
)


def note(id_, of, text):
    return Envelope(id_, "Note", json.dumps({"of": of, "text": text}))


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    explored = Explored(tmp_path_factory.mktemp("hostile"), NOTES)
    messages: list[Envelope] = []
    for number, text in enumerate(HOSTILE.values()):
        for of in (text, f"book-{number}"):
            messages.append(note(f"{len(messages)} {text}", of, text))
        messages.append(note(f"fails {text}", f"book-{number}", f"fail {text}"))
        messages.append(Envelope(f"odd {text}", f"Odd{text}", json.dumps(text), headers={text: text}))
    explored.batch(messages)
    return explored


def pages_of(browser):
    """Return the addresses of all pages that show text of senders."""
    pages = ["/", "/batches", "/batch?id=night-1", "/objects", "/letters", "/publications"]
    for page in pages[2:5]:
        found = re.findall(r'href="(/(?:object|message|letter)\?[^"]*)"', browser.send("GET", page).text)
        pages += [each.replace("&amp;", "&") for each in dict.fromkeys(found)][:60]
    groups = browser.json("letters")["groups"]
    pages += [f"/letters?group={each['group']}&confirm=discard" for each in groups]
    return list(dict.fromkeys(pages))


def test_no_page_has_markup_or_hidden_characters_of_senders(hostile, open_explorer):
    browser = open_explorer(hostile, app=NOTES, allow_changes=True)
    pages = pages_of(browser)
    assert len(pages) > 100
    for page in pages:
        response = browser.send("GET", page)
        seen = Seen(response.text)

        assert response.status_code == 200, page
        assert seen.tags <= OWN, (page, seen.tags - OWN)
        assert seen.dangers == [], page
        # In values of forms, the text must stay what it is.
        assert HIDDEN.search(re.sub(r'value="[^"]*"', "", response.text)) is None, page


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_links_lead_to_their_object_and_json_and_plain_text_are_unchanged(hostile, open_explorer, text):
    browser = open_explorer(hostile, app=NOTES)
    page = browser.get("objects", handler="Book", prefix=text)
    link = re.search(r'<a class="id" href="([^"]+)"', page.text)
    assert link is not None

    document = browser.send("GET", link[1].replace("&amp;", "&") + "&format=json").json()

    assert document["business_id"] == text
    assert document["version"]["after"] == {"text": text}
    assert document["version"]["captured"] == {"heard": text}
    plain = browser.get("object", handler="Book", id=text, text="version/after/text")
    assert (plain.content.decode(), plain.headers["content-type"]) == (text, "text/plain; charset=utf-8")


def test_a_hidden_character_is_a_marked_code(hostile, open_explorer):
    page = open_explorer(hostile, app=NOTES).get("object", handler="Book", id=HOSTILE["bidi"]).text

    assert 'user<mark class="code">U+202E</mark>gnp.exe<mark class="code">U+2066</mark>' in page
    assert "<title>Book user[U+202E]gnp.exe" in page


def test_a_megabyte_is_cut_with_a_link_to_the_whole(tmp_path, open_explorer):
    explored, long = Explored(tmp_path, NOTES), "<i>" + "y" * 2**20
    notes = [note("long-1", "b", long[:200_000]), note("long-2", "b", "fail" + long[:200_000])]
    explored.batch([*notes, Envelope("long-3", "Odd" * 1000, json.dumps(long))])
    browser = open_explorer(explored, app=NOTES)
    messages = "/message?id=long-1", "/message?id=long-3"
    for page in ("/object?handler=Book&id=b", "/batch?id=night-1", "/letters", *messages):
        response = browser.send("GET", page)
        assert (response.status_code, len(response.content) < 60_000) == (200, True), page
    page = browser.get("object", handler="Book", id="b").text
    whole = re.search(r'<a href="([^"]+)">whole value</a>', page)
    assert whole is not None

    response = browser.send("GET", whole[1].replace("&amp;", "&"))

    assert json.loads(response.text) == {"text": long[:200_000]}
    assert response.headers["content-type"].startswith("text/plain")


def test_an_id_with_a_surrogate_is_shown(tmp_path, open_explorer):
    explored = Explored(tmp_path, NOTES)

    async def publish(_):
        """Publish nothing."""

    drive(Processor(NOTES, explored.table, publish).process(note("odd \ud800", "b", "x")))
    browser = open_explorer(explored, app=NOTES)

    assert 'odd <mark class="code">U+D800</mark>' in browser.get("letters").text
    letter = browser.json("letters")["letters"][0]
    page = browser.get("letter", handler="Book", id=letter["stream"], letter=letter["letter"])
    assert page.status_code == 200


@pytest.mark.parametrize(
    "said",
    [
        "postgresql://user:s3cr3t@host/db", "AccountName=a;AccountKey=s3cr3t==;x=1", "https://host/?sig=s3cr3t&x=1",
        "amqp://u:s3cr3t@h/?queue=q", "Authorization token=s3cr3t",
    ],
)  # fmt: skip
def test_no_page_shows_a_secret(tmp_path, open_explorer, said):
    explored = Explored(tmp_path, NOTES)
    explored.out = f"{tmp_path}/outcomes?{said}"
    explored.batch([], rounds=0)
    record = drive(Ledger(explored.table, explored.clock).begin("second", f"log {said}", explored.out))
    explored.publication(record, said)
    browser = open_explorer(explored)

    for page in ("/", "/batches", "/batch?id=second", "/publications"):
        for twin in ("", "?format=json" if "?" not in page else "&format=json"):
            assert "s3cr3t" not in browser.send("GET", page + twin).text
