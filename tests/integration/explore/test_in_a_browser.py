"""The explorer in Debian's Chromium: journeys, accessibility in both themes and on a phone, and what CSP stops.

`EXPLORER_PICTURES=docs/pictures pytest tests/integration/explore` also writes the pictures of the documentation.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from eventstore import drive
from runtime import Envelope
from runtime.dead_letters import Selection, find_letters
from runtime.explore import Explorer
from samples.shooting_range import app
from tests.plugins.azurite import REPOSITORY
from tests.support.explored import GAME, TABLE, Explored, played

pytestmark = pytest.mark.thorough

AXE = REPOSITORY / "node_modules" / "axe-core" / "axe.min.js"
SERIOUS = ("serious", "critical")
LAPTOP, PHONE = {"width": 1280, "height": 800}, {"width": 390, "height": 844}
OBJECT = f"object?handler=ShootingRange&id={GAME}"
LETTER = f"letter?handler=ShootingRange&id={GAME}&letter=1"


@contextmanager
def served(explorer: Explorer) -> Iterator[str]:
    """Serve an explorer on this machine, and yield its URL."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = uvicorn.Server(uvicorn.Config(explorer, lifespan="off", log_level="warning"))
        thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listening])))
        thread.start()
        yield f"http://localhost:{listening.getsockname()[1]}"
        server.should_exit = True
        thread.join()


@pytest.fixture
def explored(tmp_path: Path) -> Explored:
    return played(tmp_path)


@pytest.fixture
def url(explored: Explored) -> Iterator[str]:
    with served(Explorer(explored.store, TABLE, app=app, allow_changes=True, token="the-token")) as url:
        yield url


@pytest.fixture
def page(chromium: Any, url: str) -> Iterator[Any]:
    """Open a page in a context of its own, which fails the test for errors of scripts and of CSP."""
    context = chromium.new_context(viewport=LAPTOP, base_url=url)
    page, said = context.new_page(), []
    page.on("console", lambda message: said.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto("/?token=the-token")
    yield page
    context.close()
    assert said == []


def paths(page: Any) -> list[str]:
    """Return the address of each kind of page."""
    found = page.request.get("/batch?id=night-5&format=json").json()["outcomes"]
    message = next(each["message_id"] for each in found if each["outputs"])
    return [
        "", "batches", "batch?id=night-5", "objects?order=versions", OBJECT, f"{OBJECT}&version=3",
        f"message?id={message}", "message?id=broken-1", "letters", LETTER, f"{LETTER}&confirm=discard", "publications",
        "object?handler=None&id=0",
    ]  # fmt: skip


def test_from_the_printed_url_to_a_version_and_its_cause(page):
    assert "token" not in page.url
    assert "the-token" not in page.content()

    page.get_by_role("link", name="Objects").click()
    page.get_by_label("Handler").fill("LeaderBoard")
    page.get_by_role("button", name="Search").click()
    page.locator("tbody a.id").first.click()
    assert page.get_by_role("heading", level=1).inner_text().startswith("LeaderBoard")

    page.locator("dd a.id").first.click()
    assert page.get_by_role("heading", name="Causes and outputs").is_visible()
    page.locator("svg.graph a").first.click()
    assert "FireAt" in page.locator("main").inner_text()


def test_the_slider_goes_to_a_version(page):
    page.goto(f"/{OBJECT}")
    slider = page.get_by_role("slider")
    newest = int(slider.get_attribute("max"))

    slider.focus()
    with page.expect_navigation():
        page.keyboard.press("ArrowLeft")

    assert (
        page.get_by_role("heading", level=2).first.inner_text() == f"As of version {newest - 1} of {newest}"
    )


def test_without_scripts_the_slider_has_a_button(chromium, url):
    context = chromium.new_context(java_script_enabled=False, base_url=url)
    page = context.new_page()
    page.goto("/?token=the-token")
    page.goto(f"/{OBJECT}")
    page.get_by_role("slider").press("Home")
    page.get_by_role("button", name="Show").click()

    assert "As of version 1 of" in page.get_by_role("heading", level=2).first.inner_text()
    context.close()


def test_a_version_is_replayed(page):
    page.goto("/object?handler=LeaderBoard&id=" + GAME)
    page.get_by_text("Replay this version").click()
    page.get_by_role("button", name="Replay").click()

    assert "the same state and the same outputs" in page.get_by_role("status").inner_text()


def test_a_dead_letter_is_discarded_once_it_was_confirmed(page, explored):
    page.goto("/letters")
    page.get_by_role("link", name="broken-0").click()
    page.get_by_role("link", name="Discard …").click()
    page.get_by_role("link", name="Cancel").click()
    assert page.get_by_role("button", name="Discard").count() == 0

    page.get_by_role("link", name="Discard …").click()
    page.get_by_role("button", name="Discard").click()

    assert page.get_by_role("status").inner_text() == "The dead letter was discarded."
    assert page.get_by_role("link", name="broken-0").count() == 0


def test_the_keyboard_reaches_the_content_and_every_link(page):
    page.goto("/objects")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to content"
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.name") == "handler"

    outlines = set()
    for _ in range(6):
        page.keyboard.press("Tab")
        outlines.add(page.evaluate("getComputedStyle(document.activeElement).outlineStyle"))
    assert outlines == {"solid"}


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("viewport", [LAPTOP, PHONE], ids=["laptop", "phone"])
def test_axe_finds_nothing_serious_and_nothing_overflows(chromium, url, theme, viewport):
    context = chromium.new_context(color_scheme=theme, viewport=viewport, base_url=url, bypass_csp=True)
    page, found = context.new_page(), []
    page.goto("/?token=the-token")
    for path in paths(page):
        page.goto(f"/{path}")
        page.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")
        page.add_script_tag(path=AXE)
        result = page.evaluate("axe.run()")
        for violation in result["violations"]:
            if violation["impact"] in SERIOUS:
                nodes = [
                    (node["html"][:120], node["failureSummary"][:200]) for node in violation["nodes"][:2]
                ]
                found.append((path, violation["id"], nodes))
        overflow = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        if overflow > 0:
            found.append((path, "overflow", overflow))
    context.close()
    assert found == []


HOSTILE = '<img src=x onerror="document.title=1"><script>document.title=1</script>\u202e{{7*7}}'


def test_hostile_text_runs_nothing(chromium, tmp_path):
    explored = Explored(tmp_path)
    explored.batch([Envelope(HOSTILE, HOSTILE, json.dumps(HOSTILE), headers={HOSTILE: HOSTILE})])
    with served(Explorer(explored.store, TABLE, token="")) as url:
        page = chromium.new_page()
        for path in ("", "batch?id=night-1", "letters"):
            page.goto(f"{url}/{path}")
            assert page.title().endswith("· consistent")
        page.locator("tbody td a.id").first.click()
        assert "<script>" in page.locator("main").inner_text()
        assert page.locator("main img, main script").count() == 0
        page.close()


def test_the_policy_stops_what_escaping_would_miss(chromium, url):
    """An inline script, and a picture of another site, do nothing even if they are in a page."""
    page = chromium.new_page()
    page.goto(f"{url}/?token=the-token")
    blocked = page.evaluate(
        """async () => {
            const blocked = [];
            document.addEventListener("securitypolicyviolation", (event) => blocked.push(event.violatedDirective));
            const script = document.createElement("script");
            script.textContent = "document.title = 'taken'";
            document.body.append(script);
            const image = new Image();
            image.src = "http://evil.example/x.png";
            await new Promise((done) => setTimeout(done, 200));
            return [document.title, ...blocked];
        }"""
    )
    assert "taken" not in blocked
    assert {"script-src-elem", "img-src"} <= set(blocked)
    page.close()


def test_another_site_can_neither_read_nor_post(chromium, url, explored):
    """A page of another origin has the cookie's browser, but gets neither the page nor the change."""
    context = chromium.new_context()
    page = context.new_page()
    page.goto(f"{url}/?token=the-token")
    csrf = page.request.get(f"{url}/{LETTER}&confirm=discard").text().partition('name="csrf" value="')[2][:64]
    form = f"""<form method=post action="{url}/discard"><input name=csrf value="{csrf}"><input name=handler
        value=ShootingRange><input name=id value="{GAME}"><input name=letter value=1></form>"""
    context.route("http://evil.example/**", lambda route: route.fulfill(body=form, content_type="text/html"))

    page.goto("http://evil.example/")
    with page.expect_navigation():
        page.evaluate("document.forms[0].submit()")
    assert "refused" in page.content()
    page.goto("http://evil.example/")
    assert page.evaluate(f"fetch('{url}/').then(() => 'read', () => 'refused')") == "refused"
    frame = f"new Promise((done) => {{ const f = document.createElement('iframe'); f.src = '{url}/';"
    frame += " f.onload = () => { try { done(f.contentDocument ? 'read' : 'refused') } catch { done('refused') } };"
    frame += " document.body.append(f) })"
    assert page.evaluate(frame) == "refused"
    context.close()

    async def found() -> list[str]:
        return [each.name async for each in find_letters(explored.table, Selection(handler="ShootingRange"))]

    assert "1" in drive(found())


PICTURES = {"overview": "", "object": f"{OBJECT}&version=30", "letters": "letters"}


@pytest.mark.parametrize("name", PICTURES)
def test_pictures(chromium, url, name, tmp_path):
    """Write a picture of a page, into the folder of the documentation if that is chosen."""
    folder = Path(os.environ.get("EXPLORER_PICTURES") or tmp_path)
    context = chromium.new_context(viewport={"width": 1100, "height": 640}, base_url=url)
    page = context.new_page()
    page.goto("/?token=the-token")
    page.goto(f"/{PICTURES[name]}")
    # The path of the store is another one in each run.
    page.evaluate("document.querySelector('.brand span').textContent = 'games · sqlite:///store.db'")
    page.screenshot(path=folder / f"explorer-{name}.png")
    context.close()

    assert (folder / f"explorer-{name}.png").stat().st_size > 10_000
