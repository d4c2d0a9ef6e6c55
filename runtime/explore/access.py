"""Access to the explorer: allowed hosts, the token with its cookie, and forms of its own pages only."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Collection, Mapping
from urllib.parse import parse_qsl, urlencode, urlsplit

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from eventstore import InterceptedTable, Table
from runtime.errors import UsageError

LOOPBACK = ("localhost", "127.0.0.1", "::1")

_HEADERS = {
    "content-security-policy": "default-src 'none'; style-src 'self'; script-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
}
_MAX_FORM_BYTES = 4 * 2**20
_CSRF = "csrf"


def read_only(table: Table) -> InterceptedTable:
    """Return the table, which raises `UsageError` for every call that could write."""

    def refuse(name: str, *_: object) -> None:
        if name not in ("get", "query", "scan"):
            raise UsageError("The explorer cannot write to this table: start it with --allow-changes.")

    return InterceptedTable(table, before=refuse)


class Access:
    """ASGI middleware in front of all pages. An empty `token` leaves authentication to the surrounding app.

    `secret`, by default the token or a random text, signs cookies and forms.
    """

    def __init__(self, app: ASGIApp, token: str, secret: str = "", hosts: Collection[str] = ()) -> None:
        self._app = app
        self._token = token
        self._hosts = {*LOOPBACK, *(host.lower() for host in hosts)}
        self._key = (secret or token or secrets.token_urlsafe()).encode()
        self._cookie = f"explore-{self._digest('name')[:8]}"  # differs between explorers of one host
        self.csrf = self._digest(_CSRF)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on to the app."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        if scope["type"] != "http":
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("cache-control", "no-store")
            await send(message)

        request = Request(scope)
        answer = self._refusal(request) or self._answer_to_token(request)
        await (answer or self._app)(scope, receive, send_with_headers)

    def _refusal(self, request: Request) -> Response | None:
        host = request.headers.get("host", "")
        if _hostname(f"//{host}") not in self._hosts:
            return PlainTextResponse("This host name is not allowed.", 421)
        if request.method == "POST":
            origin = request.headers.get("origin")
            site = request.headers.get("sec-fetch-site", "same-origin")
            if site != "same-origin" or (origin is not None and urlsplit(origin).netloc != host):
                return PlainTextResponse("Forms of other sites are refused.", 403)
        return None

    def _answer_to_token(self, request: Request) -> Response | None:
        """Exchange a token in the URL for a cookie, or refuse the request. Return None if the request may pass."""
        if not self._token:
            return None
        given = request.query_params.get("token")
        if given is not None and _is_same(given, self._token):
            rest = [pair for pair in request.query_params.multi_items() if pair[0] != "token"]
            # Relative, because a proxy may change the path, and with "./", which no name can turn into a scheme.
            page = "./" + request.url.path.rpartition("/")[2]
            answer = RedirectResponse(f"{page}?{urlencode(rest)}" if rest else page, 303)
            path = request.scope.get("root_path") or "/"
            answer.set_cookie(
                self._cookie,
                self._digest("cookie"),
                path=path,
                httponly=True,
                samesite="strict",
                secure=request.url.scheme == "https",
            )
            return answer
        bearer = request.headers.get("authorization", "").removeprefix("Bearer ")
        is_known = _is_same(request.cookies.get(self._cookie, ""), self._digest("cookie"))
        if given is None and (is_known or _is_same(bearer, self._token)):
            return None
        return PlainTextResponse("Open the URL with the token that `consistent explore` printed.", 403)

    def _digest(self, purpose: str) -> str:
        return hmac.digest(self._key, purpose.encode(), "sha256").hex()

    async def form(self, request: Request) -> Mapping[str, str]:
        """Return the fields of a form of the explorer's own pages. Raises `UsageError` for other or large forms."""
        body = b""
        async for chunk in request.stream():
            body += chunk
            if len(body) > _MAX_FORM_BYTES:
                raise UsageError("The form is too large.")
        fields = dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))
        if not _is_same(fields.pop(_CSRF, ""), self.csrf):
            raise UsageError("The form is outdated: go back, reload the page and try again.")
        return fields


def _is_same(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "replace"), expected.encode())


def _hostname(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None
