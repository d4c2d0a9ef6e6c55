"""A table that was played on, and a browser without a network."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest

from runtime.explore import Explorer
from samples.shooting_range import app
from tests.support.explored import TABLE, Explored, played


class Browser:
    """Sends requests to an explorer, and keeps its cookies."""

    def __init__(self, explorer: Any, base: str = "http://localhost") -> None:
        self.explorer, self.base, self.cookies = explorer, base, httpx.Cookies()

    def get(self, page: str, /, **query: object) -> httpx.Response:
        return self.send("GET", f"/{page}{'?' if query else ''}{urlencode(query)}")

    def json(self, page: str, /, **query: object) -> Any:
        return self.get(page, **query, format="json").json()

    def post(self, page: str, fields: dict[str, object], **headers: str) -> httpx.Response:
        return self.send("POST", f"/{page}", content=urlencode(fields), headers=headers)

    def send(self, method: str, url: str, **more: Any) -> httpx.Response:
        async def sent() -> httpx.Response:
            transport = httpx.ASGITransport(self.explorer)
            async with httpx.AsyncClient(
                transport=transport, base_url=self.base, cookies=self.cookies
            ) as client:
                response = await client.request(method, url, **more)
                self.cookies = client.cookies
                return response

        return asyncio.run(sent())


@pytest.fixture(scope="session")
def explored(tmp_path_factory: pytest.TempPathFactory) -> Explored:
    """Return a table on which games were played. Tests that change one play on a table of their own."""
    return played(tmp_path_factory.mktemp("explored"))


@pytest.fixture
def open_explorer() -> Callable[..., Browser]:
    def opened(explored: Explored, **options: Any) -> Browser:
        given = {"app": app, "token": "", **options}
        return Browser(Explorer(explored.store, TABLE, **given))

    return opened


@pytest.fixture
def browser(explored: Explored, open_explorer: Callable[..., Browser]) -> Browser:
    return open_explorer(explored)
