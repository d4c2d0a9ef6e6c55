"""What docs/explorer.md shows runs as it stands."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess

import httpx
import pytest

from tests.docs.pasting import beside_the_project, marked
from tests.support.explored import played

PAGE = "docs/explorer.md"
pytestmark = pytest.mark.thorough


def test_the_command_prints_a_url_that_opens_the_pages(tmp_path):
    played(tmp_path, games=2, nights=1, shots=4)
    (command,) = marked(PAGE, "explore")
    process = subprocess.Popen(
        ["bash", "-c", f"exec {command.strip()} --port 0"], cwd=tmp_path, env=beside_the_project(),
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    with process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            url = process.stdout.readline().strip()
            with httpx.Client(follow_redirects=True) as client:
                page = client.get(url)
                pages = [
                    client.get(str(page.url.join(each)))
                    for each in re.findall(r'href="(/[^"?]*)"', page.text)
                ]
        finally:
            os.kill(process.pid, signal.SIGINT)

    assert {each.status_code for each in (page, *pages)} == {200}
    assert process.returncode == 0


def test_it_can_be_mounted(tmp_path, monkeypatch):
    played(tmp_path, games=2, nights=1, shots=4)
    monkeypatch.chdir(tmp_path)
    (program,) = marked(PAGE, "mount")
    names: dict[str, object] = {}
    exec(program, names)  # as a reader does

    async def pages() -> dict[str, int]:
        transport = httpx.ASGITransport(names["application"])  # type: ignore[arg-type]
        async with httpx.AsyncClient(transport=transport, base_url="http://admin.example.com") as client:
            page = await client.get("/messages/")
            links = re.findall(r'(?:href|src)="(/[^"]*)"', page.text)
            assert all(link.startswith("/messages/") for link in links)
            return {link: (await client.get(link.replace("&amp;", "&"))).status_code for link in links}

    assert set(asyncio.run(pages()).values()) == {200}
