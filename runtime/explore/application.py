"""The explorer: an ASGI app of pages over one table. Each page also has a JSON form."""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import re
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit

from anyio.to_thread import run_sync
from jinja2 import Environment, FileSystemLoader, StrictUndefined, pass_context
from jinja2.runtime import Context
from markupsafe import Markup, escape
from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from eventstore import EventStoreError, InterceptedTable, InvalidKeyError, Store, Table, connect
from handlers import App, HandlersError
from runtime.algorithms.state_based.replay import Verifier
from runtime.clock import system_clock, to_microseconds
from runtime.dead_letters import FoundLetter, Selection, describe_letter, discard, remove
from runtime.errors import RuntimeFailure, UsageError
from runtime.explore import reading
from runtime.explore.reading import ROWS
from runtime.ledger.batch import POSITION
from runtime.ledger.ledger import STATE_BASED, BatchRecord, Ledger, describe
from runtime.ledger.settings import TableSettings
from runtime.messages.envelope import Envelope
from runtime.messages.outcome import DeadLetterGroups, Status, without_values
from runtime.messages.parsing import prepare
from runtime.options import without_secrets
from runtime.retries import RetryPolicy
from runtime.versions.properties import Damaged, collecting, error_location
from runtime.versions.readable import HIDDEN, HIDDEN_IN_LINE, describe_version, recognised
from runtime.versions.run import Version

Document = dict[str, Any]

# Access: allowed hosts, the token with its cookie, and forms of the explorer's own pages only.

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
    """Return a view of the table that raises `UsageError` for every call that could write."""

    def refuse(name: str, *_: object) -> None:
        if name not in ("get", "query", "scan"):
            raise UsageError("The explorer cannot write to this table: start it with --allow-changes.")

    return InterceptedTable(table, before=refuse)


class Access:
    """ASGI middleware that checks host and token before each page. With an empty `token`, the outer app authenticates.

    `secret`, by default the token or a random text, signs cookies and forms. `hosts` are allowed names of the server.
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
        try:
            name = urlsplit(f"//{host}").hostname
        except ValueError:
            name = None
        if name not in self._hosts:
            return PlainTextResponse("This host name is not allowed.", 421)
        if request.method == "POST":
            origin = request.headers.get("origin")
            site = request.headers.get("sec-fetch-site", "same-origin")
            if site != "same-origin" or (origin is not None and urlsplit(origin).netloc != host):
                return PlainTextResponse("Forms of other sites are refused.", 403)
        return None

    def _answer_to_token(self, request: Request) -> Response | None:
        """Exchange a token in the URL for a cookie, or answer 403. Return None if the request is authenticated."""
        if not self._token:
            return None
        given, cookie = request.query_params.get("token"), self._digest("cookie")
        if given is not None and _is_same(given, self._token):
            rest = [pair for pair in request.query_params.multi_items() if pair[0] != "token"]
            # Relative, because a proxy may change the path, and with "./", which no name can turn into a scheme.
            page = "./" + request.url.path.rpartition("/")[2]
            answer = RedirectResponse(f"{page}?{urlencode(rest)}" if rest else page, 303)
            path = request.scope.get("root_path") or "/"
            https = request.url.scheme == "https"
            answer.set_cookie(self._cookie, cookie, path=path, secure=https, httponly=True, samesite="strict")
            return answer
        bearer = request.headers.get("authorization", "").removeprefix("Bearer ")
        is_known = _is_same(request.cookies.get(self._cookie, ""), cookie)
        if given is None and (is_known or _is_same(bearer, self._token)):
            return None
        return PlainTextResponse("Open the URL with the token that `consistent explore` printed.", 403)

    def _digest(self, purpose: str) -> str:
        return hmac.digest(self._key, purpose.encode(), "sha256").hex()

    async def form(self, request: Request) -> Mapping[str, str]:
        """Return the fields of a form. Raises `UsageError` if the form is too large, or not signed by this explorer."""
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


# Documents as pages, JSON or plain text. Text of senders is escaped, and hidden characters become visible.

MOST = 2_000  # characters of a value on a page, with a link to the whole value as plain text
_BRIEF = 120


def as_json(value: Any, indent: int | None = None, *, is_ascii: bool = False) -> str:  # noqa: ANN401 - of a document
    """Format a value as JSON. Times are ISO 8601 in UTC."""
    return json.dumps(value, indent=indent, ensure_ascii=is_ascii, default=_for_json)


def _for_json(value: object) -> str:
    return value.isoformat().replace("+00:00", "Z") if isinstance(value, datetime) else str(value)


def plain(document: Any, path: str) -> str:  # noqa: ANN401 - of a document
    """Return the value at a path such as `versions/3/state`, as text.

    Raises `LookupError`, `TypeError` or `ValueError` if the document has no such value.
    """
    for name in path.split("/"):
        document = document[int(name)] if isinstance(document, list) else document[name]
    return document if isinstance(document, str) else as_json(document, 2)


def marked(value: Any, hidden: re.Pattern[str] = HIDDEN_IN_LINE) -> Markup:  # noqa: ANN401 - of a document
    """Return a value as escaped text of limited length. Characters that match `hidden` become visible codes."""
    match value:
        case Markup():
            return value
        case None:
            return Markup('<span class="none">none</span>')
        case bool():
            return Markup("yes" if value else "no")
        case datetime():
            shown = value.isoformat(" ", "milliseconds").removesuffix("+00:00")
            return Markup(f'<time datetime="{_for_json(value)}">{shown}</time>')
        case str():
            text = value
        case dict() | list():
            text = as_json(value)
        case _:
            text = str(value)
    shown = str(escape(text[:MOST]))
    rest = f'<span class="rest"> … {len(text) - MOST:,} characters more</span>' if len(text) > MOST else ""
    return Markup(hidden.sub(lambda found: f'<mark class="code">U+{ord(found[0]):04X}</mark>', shown) + rest)


@pass_context
def cut(context: Context, value: Any, path: str) -> Markup:  # noqa: ANN401 - of a document
    """Return a value as a block. If the value is too long, cut it and link to the whole value at `path`."""
    text = value if isinstance(value, str) else as_json(value, 2)
    link = Markup(' <a href="{}">whole value</a>').format(context["here"](text=path))
    return Markup("<pre tabindex=0>{}</pre>{}").format(marked(text, HIDDEN), link if len(text) > MOST else "")


def raw(value: object) -> Markup:
    """Return a value for an attribute of a form: escaped, with hidden characters unchanged."""
    return escape(str(value).encode("utf-8", "replace").decode())


def when(value: str | None) -> Markup:
    """Return a time in ISO 8601 as markup. Other text, such as a time outside the calendar, is only escaped."""
    try:
        return marked(None if value is None else datetime.fromisoformat(value))
    except ValueError:
        return marked(value)


def counted(value: float | None) -> str:
    """Format a number with thousands separators, None as an empty string."""
    return "" if value is None else f"{value:,.0f}"


def brief(value: Any) -> Markup:  # noqa: ANN401 - of a document
    """Return the beginning of a value as JSON on one line."""
    text = as_json(value)
    return marked(text if len(text) <= _BRIEF else f"{text[:_BRIEF]}…")


def flat(text: object) -> Markup:
    """Return escaped text for titles and SVG. Hidden characters become codes such as [U+200B], without markup."""
    return escape(HIDDEN_IN_LINE.sub(lambda found: f"[U+{ord(found[0]):04X}]", str(text)))


_PAGES = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "templates"),
    autoescape=True,
    finalize=marked,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    extensions=["jinja2.ext.do"],
)
_PAGES.filters |= {each.__name__: each for each in (cut, raw, flat, brief, when)} | {"n": counted}


def render(template: str, document: Document, root: str, query: Mapping[str, str], **more: Any) -> str:  # noqa: ANN401
    """Return the HTML of a document.

    `root` is the URL path prefix of all pages, and `query` has the parameters of the page's URL. `more` are further
    variables of the template, including `path`, the path of the page.
    """

    def link(page: str, /, **parameters: object) -> str:
        given = {name: str(value) for name, value in parameters.items() if value not in (None, "")}
        return f"{root}/{page}" + (f"?{urlencode(given, errors='replace')}" if given else "")

    def here(**changed: object) -> str:
        return link(more["path"], **{**query, **changed})

    page = _PAGES.get_template(template)
    return page.render(document, link=link, here=here, query=query, **more)


# The pages.

Redrive = Callable[[Sequence[FoundLetter]], Awaitable[str]]  # redrives dead letters, and returns the batch id
_LOG = logging.getLogger("consistent.explore")
_EXPECTED = (RuntimeFailure, EventStoreError, HandlersError)
_INVALID = (UsageError, InvalidKeyError)
_BEFORE_AND_AFTER = 12  # versions listed around the selected one
_NEWEST = 30  # batches in the charts
_VERSIONS = 10  # of one message


class NotFoundError(RuntimeFailure):
    """Raised if the table does not have the requested batch, object, version or dead letter."""


class Page(NamedTuple):
    """A document and the name of the template that shows it."""

    template: str
    document: Document


class Explorer:
    """Pages over one table, as an ASGI app to serve or to mount. The pages only read, unless `allow_changes` is set.

    `store` is an open store or its URL. A browser needs the URL parameter `?token=TOKEN` once. By default the token is
    random; pass "" if the surrounding app authenticates. Several processes need the same `token` or, without one, the
    same `secret`, which signs cookies and forms. `hosts` are further names of the server, in addition to those of this
    machine.

    `app` allows versions to be replayed. `out` is the folder of outcomes, if they were moved. `allow_changes` allows
    dead letters to be discarded and, with `redrive`, to be redriven.
    """

    def __init__(
        self,
        store: str | Store,
        table: str,
        *,
        app: App | None = None,
        out: str | None = None,
        allow_changes: bool = False,
        redrive: Redrive | None = None,
        token: str | None = None,
        secret: str = "",
        hosts: Collection[str] = (),
    ) -> None:
        self.token = secrets.token_urlsafe(24) if token is None else token
        self._store = connect(store) if isinstance(store, str) else store
        self._table_name = table
        self._app, self._out = app, out
        self._allow_changes = allow_changes
        self._redrive_letters = redrive if allow_changes else None
        self._opened: Table | None = None
        pages: list[Any] = [
            self._batches, self._batch, self._objects, self._object, self._message, self._letters, self._letter,
            self._publications,
        ]  # fmt: skip
        deeds: list[Any] = [self._replay, self._discard, self._redrive]
        routes: list[Any] = [
            Route(f"/{page.__name__.strip('_')}", partial(self._answer, page), methods=[method])
            for method, some in (("GET", pages), ("POST", deeds))
            for page in some
        ]
        routes.append(Route("/", partial(self._answer, self._overview)))
        static = Mount("/static", StaticFiles(directory=Path(__file__).parent / "static"))
        self._access = Access(Starlette(routes=[*routes, static]), self.token, secret, hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer an HTTP request: the entry point of ASGI."""
        await self._access(scope, receive, send)

    async def _table(self) -> Table:
        if self._opened is None:
            self._opened = await self._store.table(self._table_name, make=False)
        return self._opened

    async def _answer(self, page_of: Callable[..., Awaitable[Page | Response]], request: Request) -> Response:
        damaged, status = Damaged(), 200
        page: Page | Response
        try:
            with collecting(damaged):
                table = read_only(await self._table())
                with error_location(table):
                    page = await page_of(request, table)
        except _EXPECTED as error:
            is_missing = isinstance(error, NotFoundError)
            status = 404 if is_missing else 400 if isinstance(error, _INVALID) else 503
            page = Page("error.html", {"error": without_secrets(str(error))})
        except Exception:  # noqa: BLE001 - its text may contain secrets: only the log has it
            _LOG.exception("A page failed.")
            status, page = 500, Page("error.html", {"error": "This page failed. The log has the traceback."})
        if isinstance(page, Response):
            return page
        skipped = [without_secrets(str(error)) for error in damaged.errors]
        return self._shown(request, page.template, {**page.document, "skipped": skipped}, status)

    def _shown(self, request: Request, template: str, document: Document, status: int) -> Response:
        """Return a page as HTML or, depending on the URL, as JSON or as the text of a single value."""
        query = dict(request.query_params)
        if "text" in query:
            try:
                text = plain(document, query["text"])
            except (LookupError, TypeError, ValueError):
                return PlainTextResponse("This page has no such value.", 404)
            return PlainTextResponse(text.encode("utf-8", "backslashreplace"), status)
        if query.get("format") == "json":
            return Response(as_json(document, 2, is_ascii=True), status, media_type="application/json")
        root = str(request.scope.get("root_path", ""))
        html = render(
            template,
            document,
            root,
            query,
            path=request.scope["path"].removeprefix(root).strip("/"),
            place=f"{self._table_name} · {self._store.url}",
            csrf=self._access.csrf,
            is_page=request.method == "GET",
            has_app=self._app is not None,
            allow_changes=self._allow_changes,
        )
        return HTMLResponse(html.encode("utf-8", "backslashreplace"), status)

    async def _overview(self, request: Request, table: Table) -> Page:
        ledger, after = Ledger(table, system_clock), request.query_params.get("after", "")
        (algorithm, _), records = await ledger.algorithm() or (None, ""), await ledger.batches(_NEWEST)
        letters = await reading.letters(table, "", "")
        reasons = Counter(each.letter.reason.value for each in letters.letters)
        document = {
            "algorithm": algorithm or await reading.algorithm_of_entities(table) or STATE_BASED,
            "handlers": await reading.handlers(table, after),
            "after": after,
            "reasons": dict(reasons.most_common()),
            "letters_examined": letters.examined,
            "has_more_letters": letters.next is not None,
            "batches": list(map(_batch_row, reversed(records))),
        }
        return Page("overview.html", document)

    async def _batches(self, request: Request, table: Table) -> Page:
        ledger, after = Ledger(table, system_clock), request.query_params.get("after")
        records = await ledger.batches(ROWS, await ledger.get(after) if after else None)
        is_more = len(records) == ROWS and records[-1].is_finished
        next_ = records[-1].batch_id if is_more else None
        return Page("batches.html", {"batches": list(map(_batch_row, records)), "next": next_})

    async def _batch(self, request: Request, table: Table) -> Page:
        query = request.query_params
        record = await Ledger(table, system_clock).find(query.get("id", ""))
        if record is None:
            raise NotFoundError(f"There is no batch {query.get('id')}.")
        published, _ = await reading.publications(table, "", record.batch_id)
        chosen = {name: query.get(name) or None for name in ("status", "handler", "reason")}
        place = reading.Place(record.batch_id, self._folder(record))
        found = await run_sync(reading.outcomes_of_batch, place, chosen, query.get("after", ""))
        return Page("batch.html", {**_batch_row(record), **found, "publications": published})

    def _folder(self, record: BatchRecord) -> str:
        return self._out or record.shown_in

    async def _objects(self, request: Request, table: Table) -> Page:
        query = request.query_params
        given = {name: query.get(name, "") for name in ("handler", "prefix", "after")}
        given["order"] = query.get("order", "id")
        found = await reading.objects(table, **given)
        return Page("objects.html", {**found, **given, "orders": list(reading.ORDERS)})

    async def _object(self, request: Request, table: Table) -> Page:
        query = request.query_params
        found = await _opened_object(table, query)
        head, first = found.head, found.head.kept_from
        number: int | None = _number(query.get("version"), head.versions)
        if query.get("at"):
            number = await reading.version_as_of(found, _time(query["at"]))
        listed: list[Version] = []
        if head.versions >= first:
            if number is None or not first <= number <= head.versions:
                kept = f"the table has versions {first:,} to {head.versions:,} of this object"
                raise NotFoundError(f"There is no such version: {kept}.")
            ends = max(first, number - _BEFORE_AND_AFTER), min(head.versions, number + _BEFORE_AND_AFTER)
            listed = await reading.versions_between(found, *ends)
        chosen = next((each for each in listed if each.number == number), None)
        letters = await reading.letters_of_object(table, found) if head.waiting.count else []
        document = {
            "handler": found.handler,
            "business_id": found.business_id,
            "newest_version": head.versions,
            "kept_from": first,
            "recognised": recognised(head),
            "forgotten": head.tombstone is not None,
            "refuses": head.refuses,
            "letters": list(map(_letter_row, letters[:ROWS])),
            "letter_count": head.waiting.count,
            "versions": [describe_version(each, whole=False, diff=False) for each in reversed(listed)],
            "version": describe_version(chosen, whole=True, diff=True) if chosen else None,
        }
        return Page("object.html", document)

    async def _message(self, request: Request, table: Table) -> Page:
        query, ledger = request.query_params, Ledger(table, system_clock)
        id_ = query.get("id", "")
        if not id_:
            return Page("message.html", {"id": ""})
        batch_id = query.get("batch", POSITION)
        only = None if batch_id.startswith(POSITION) or not batch_id else await ledger.find(batch_id)
        after = await ledger.get(query["after"]) if query.get("after") else None
        records = await ledger.batches(reading.BATCHES, after)
        if only is not None and only.batch_id not in {each.batch_id for each in records}:
            records = [only, *await ledger.batches(reading.BATCHES - 1, only if only.is_finished else None)]
        places_of = [reading.Place(each.batch_id, self._folder(each)) for each in records]
        chosen, skip = only.batch_id if only else None, _number(query.get("skip"))
        found = await run_sync(reading.outcomes_of_message, places_of, chosen, id_, skip)
        last, is_more = only or (records[-1] if records else None), only or len(records) == reading.BATCHES
        places = {(row["handler"], row["business_id"]) for row in found["outcomes"] if row["version"]}
        if query.get("handler") and query.get("object"):
            places.add((query["handler"], query["object"]))
        versions = []
        for handler, business_id in sorted(places)[:_VERSIONS]:
            made = await reading.version_of(table, handler, business_id, id_)
            if made is not None:
                described = describe_version(made, whole=True, diff=True)
                versions.append({"handler": handler, "business_id": business_id, **described})
        document = {
            "id": id_,
            **found,
            "versions": versions,
            "window": [each.batch_id for each in (records[0], records[-1])] if records else [],
            "only": chosen,
            "next": last.batch_id if last and is_more and last.is_finished else None,
        }
        return Page("message.html", document)

    async def _letters(self, request: Request, table: Table) -> Page:
        query, groups, rows = request.query_params, DeadLetterGroups(), list[Document]()
        handler, reason, group = (query.get(name, "") for name in ("handler", "reason", "group"))
        found = await reading.letters(table, handler, query.get("after", ""))
        for each in found.letters:
            row = _letter_row(each)
            groups.add(row["reason"], row["handler"], row["type"], row["error"], row["message_id"])
            if reason in ("", row["reason"]) and group in ("", _group(row)):
                rows.append(row)
        listed, done = [asdict(each) for each in groups.largest_first()], query.get("done")
        document = {
            "handler": handler,
            "reason": reason,
            "group": group,
            "groups": [{**each, "group": _group(each)} for each in listed],
            "letters": rows,
            "examined": found.examined,
            "after": query.get("after"),
            "next": found.next,
            "done": None if done is None else _number(done),
            **self._confirmation(request, rows if group else []),
        }
        return Page("letters.html", document)

    async def _letter(self, request: Request, table: Table) -> Page:
        name = [request.query_params.get(each, "") for each in ("handler", "id", "letter")]
        (found,) = await _opened_letters(table, [name])
        document = describe_letter(found) | {"error": without_secrets(found.letter.error)}
        return Page("letter.html", document | self._confirmation(request, [document]))

    def _confirmation(self, request: Request, rows: Sequence[Document]) -> Document:
        """Return variables with which a page asks to confirm a change of the dead letters in `rows`, if requested."""
        asked = request.query_params.get("confirm") if self._allow_changes and rows else None
        names = [[row[each] or "" for each in ("handler", "stream", "letter")] for row in rows]
        can_redrive = self._redrive_letters is not None
        return {"confirm": asked, "names": json.dumps(names) if asked else None, "can_redrive": can_redrive}

    async def _publications(self, request: Request, table: Table) -> Page:
        listed, last = await reading.publications(table, request.query_params.get("after", ""))
        return Page("publications.html", {"publications": listed, "next": last})

    async def _replay(self, request: Request, table: Table) -> Page:
        """Replay a version with the current handlers. Writes nothing."""
        given = await self._access.form(request)
        found, number = await _opened_object(table, given), _number(given.get("version"))
        stored = found.head.kept_from <= number <= found.head.versions
        versions = await reading.versions_between(found, number, number) if stored else []
        version = next(iter(versions), None)
        if version is None or self._app is None:
            raise NotFoundError("There is no such version." if self._app else "Replaying needs --app.")
        app = self._app.keyed((await TableSettings.of(table)).draw_key)
        if found.handler not in app.handlers:
            raise UsageError(f"The app has no handler {found.handler}.")
        handler, record = app.handlers[found.handler], version.record
        body, source = given.get("body", "").strip(), "the form"
        if not body and version.batch is not None and not version.batch.startswith(POSITION):
            batch = await Ledger(table, system_clock).find(version.batch)
            if batch is not None:
                find = partial(reading.body_of, self._folder(batch), version.batch, version.message_id)
                body, source = await run_sync(find), "the outcomes of its batch"
        document: Document = {"handler": found.handler, "business_id": found.business_id, "version": number}
        document |= {"message_id": version.message_id, "source": source}
        if not body:
            return Page("replay.html", {**document, "verdict": None, "changes": [], "outputs": []})
        headers = dict(record.headers) if record.headers else None
        envelope = Envelope(version.message_id, record.type, body, None, None, record.enqueued_at, headers)
        verifier = Verifier(table, handler, RetryPolicy(), with_outputs=True)
        delivery = prepare(handler, found.business_id, envelope)
        # In a thread with its own event loop, because a handler may block or never return.
        verify = partial(verifier.verify, found.business_id, [delivery])
        finding = (await run_sync(lambda: asyncio.run(verify()), abandon_on_cancel=True))[-1]
        document |= {
            "verdict": finding.verdict.value,
            "error": finding.error,
            "changes": [asdict(each) for each in finding.changes],
            "outputs": [each._asdict() for each in finding.outputs],
        }
        return Page("replay.html", document)

    async def _to_change(self, request: Request, table: Table) -> list[FoundLetter]:
        """Return the waiting dead letters named in a form. Raises `UsageError` if changes are not allowed."""
        if not self._allow_changes:
            raise UsageError("This explorer only reads: start it with --allow-changes.")
        given = await self._access.form(request)
        try:
            names = [(str(handler), str(of), str(name)) for handler, of, name in json.loads(given["letters"])]
        except (LookupError, TypeError, ValueError) as error:
            raise UsageError("The form names no dead letters.") from error
        return await _opened_letters(table, names)

    async def _discard(self, request: Request, table: Table) -> Response:
        found, writable, count = await self._to_change(request, table), await self._table(), 0
        streams: dict[tuple[str, str], set[int]] = {}
        for each in found:
            if each.row is not None:
                count += await remove(writable, each.row, each.etag or "")
            else:
                stream = each.handler or "", each.business_id or ""
                streams.setdefault(stream, set()).add(each.letter.number)
        for stream, numbers in streams.items():
            count += await discard(writable, Selection(stream=stream, numbers=numbers), RetryPolicy())
        return _see(request, "letters", done=str(count))

    async def _redrive(self, request: Request, table: Table) -> Response:
        found = [each for each in await self._to_change(request, table) if each.letter.envelope is not None]
        if self._redrive_letters is None or not found:
            why = "Redriving needs --app and --out: add them, or use `consistent letters redrive`."
            raise UsageError(why if found else "Their messages are not stored.")
        return _see(request, "batch", id=await self._redrive_letters(found))


def _see(request: Request, page: str, **query: str) -> Response:
    return RedirectResponse(f"{request.scope.get('root_path', '')}/{page}?{urlencode(query)}", 303)


async def _opened_object(table: Table, given: Mapping[str, str]) -> reading.OpenedObject:
    handler, business_id = given.get("handler", ""), given.get("id", "")
    found = await reading.open_object(table, handler, business_id) if handler and business_id else None
    if found is None:
        raise NotFoundError(f"There is no object {business_id} of {handler or 'this handler'}.")
    return found


async def _opened_letters(table: Table, names: Sequence[Sequence[str]]) -> list[FoundLetter]:
    found = await reading.waiting_letters(table, names)
    if not found:
        raise NotFoundError("There is no such dead letter: it was redriven or discarded.")
    return found


def _group(letter: Mapping[str, Any]) -> str:
    fields = (*(letter[name] for name in ("reason", "handler", "type")), without_values(letter["error"]))
    return sha256(repr(fields).encode("utf-8", "backslashreplace")).hexdigest()[:12]


def _number(text: str | None, default: int = 0) -> int:
    try:
        return max(int(text), 0) if text else default
    except ValueError as error:
        raise UsageError("This parameter must be a number.") from error


def _time(text: str) -> int:
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError("Use a time such as 2026-03-01T12:00:00, in UTC.") from error
    return to_microseconds(time if time.tzinfo else time.replace(tzinfo=UTC))


def _batch_row(record: BatchRecord) -> Document:
    seconds = (record.updated_at - record.started_at).total_seconds()
    messages = sum(record.counts.get(status, 0) for status in Status)
    return {
        **describe(record),
        "status": record.status.value,
        "out": without_secrets(record.shown_in),
        "input": without_secrets(record.input),
        "seconds": seconds,
        "messages": messages,
        "rate": messages / seconds if seconds else None,
        "is_stream": record.is_epoch,
    }


def _letter_row(found: FoundLetter) -> Document:
    whole = ("body", "headers", "sequence", "enqueued_at", "packed", "version", "refused_first_at")
    row = {name: value for name, value in describe_letter(found).items() if name not in whole}
    return row | {"error": without_secrets(row["error"])}
