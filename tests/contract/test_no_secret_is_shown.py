"""Neither an account's key nor a signature nor what authorizes a request is logged, printed or shown by an error.

Everything is listened to, at the most talkative level, while a store is used, misused and cut off. The other side
keeps what was really sent, so that the signatures of requests can be looked for too.
"""

import asyncio
import base64
import logging
import re
import sys
import traceback
import types
from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qs, quote, quote_plus

import pytest
from azure.core.credentials import AccessToken, AzureNamedKeyCredential
from azure.data.tables import AccountSasPermissions, ResourceTypes, generate_account_sas

from eventstore import (
    EventData,
    Include,
    Operation,
    Partition,
    Stream,
    connect,
)
from eventstore.backends import azure
from eventstore.backends.azure import AzureTable, account_of
from tests.support.lossy_proxy import relayed
from tests.support.names import new_name

TOKEN = "eyJhbGciOiJub25lIn0.c2VjcmV0+token/="


class Overheard:
    """All that was said: log records with all that they carry, what was printed, and errors with their causes."""

    def __init__(self, caplog, capfd) -> None:
        self._caplog = caplog
        self._capfd = capfd
        self._told: list[str] = []

    def note(self, error: BaseException) -> None:
        self._told += traceback.format_exception(error)
        pending: list[BaseException | None] = [error]
        while pending:
            one = pending.pop()
            if one is not None:
                self._told += [str(one), repr(one), repr(one.args)]
                pending += [one.__cause__, one.__context__]

    def text(self) -> str:
        self._told += self._capfd.readouterr()
        records = [repr(vars(record)) for record in self._caplog.records]
        return "\n".join([self._caplog.text, *records, *self._told])

    def leaks(self, secrets) -> list[str]:
        """Return the secrets that were said, in whatever form."""
        text = self.text().lower()
        return [secret for secret in secrets if any(form.lower() in text for form in forms(secret))]


def forms(secret: str) -> set[str]:
    """Return a secret as it could stand in urls, in urls within urls, and in Python's text forms."""
    quoted = {secret, quote(secret), quote(secret, safe=""), quote_plus(secret)}
    return quoted | {quote(form, safe="") for form in quoted} | {repr(form)[1:-1] for form in quoted}


@pytest.fixture
def overheard(caplog, capfd) -> Overheard:
    for name in [None, *logging.root.manager.loggerDict]:
        caplog.set_level(logging.DEBUG, logger=name)
    return Overheard(caplog, capfd)


@pytest.fixture
def run(monkeypatch):
    # asyncio says more in debug mode; repetitions shall not take time.
    monkeypatch.setattr(azure, "_BACKOFF_SECONDS", 0)
    with asyncio.Runner(debug=True) as runner:
        yield runner.run


@pytest.fixture
def account(azurite_url):
    return account_of(azurite_url)


@pytest.fixture
def signature(account):
    """Give a signature for the account that needs quoting in a url, so that it has several forms."""
    key = AzureNamedKeyCredential(account.name, account.key)
    rights = AccountSasPermissions(read=True, add=True, update=True, delete=True, create=True)
    kinds = ResourceTypes(service=True, container=True, object=True)
    for minutes in range(60, 1000):
        made = generate_account_sas(key, kinds, rights, datetime.now(UTC) + timedelta(minutes=minutes))
        if {"+", "/"} & set(raw_signature(made)):
            return made
    raise AssertionError("The signatures have no character that is quoted.")


def raw_signature(signature: str) -> str:
    return parse_qs(signature)["sig"][0]


def authorizations(sent: bytes) -> list[str]:
    """Return the signatures of the requests that were sent, without the account's name."""
    found = re.findall(rb"(?i)\r\nauthorization: [^:\r\n]+:([^\r\n]+)", sent)
    return sorted({value.decode() for value in found})


class Use:
    """Uses a store in many ways, and gives what it meets to those who listen."""

    def __init__(self, run, overheard: Overheard) -> None:
        self._run = run
        self._overheard = overheard
        self.errors: list[str] = []

    def attempt(self, coroutine) -> None:
        try:
            self._run(coroutine)
        except Exception as error:  # noqa: BLE001 - whatever comes is looked at
            self._overheard.note(error)
            self.errors.append(type(error).__name__)

    def everything(self, store) -> None:
        print(store, store.url, repr(vars(store)))
        table = self._run(store.table(new_name()))
        partition = Partition(table, "order's/7")
        event = EventData({"N": 1, "Bytes": bytes(2000)}, id="first", includes=[Include.insert("list", {})])
        first = self._run(Stream.write(partition, event, expected_version=0)).stream
        self._run(Stream.write(first, EventData({"N": 2}), properties={"Owner": "me"}))
        self._run(Stream.read(partition, select=["N"], header=["Owner"]))
        self._run(table.scan("SS-HEAD"))
        self._run(
            table.transact("large", [Operation.insert("r", {f"P{n}": bytes(60_000) for n in range(16)})])
        )
        self.attempt(Stream.write(first, EventData({"N": 2})))
        self.attempt(Stream.write(self._run(Stream.open(partition)), EventData({}, id="first")))
        self.attempt(table.transact("p", [Operation.delete("missing")]))
        self.attempt(table.transact("p", [Operation.insert("r", {"V": bytes(70_000)})]))
        self.attempt(AzureTable(store, "missing").query("p", "a", "z"))
        self.attempt(AzureTable(store, "missing").transact("p", [Operation.insert("r", {})]))
        self.attempt(
            table.query("p", "a", "z", continuation="&NextPartitionKey=nonsense&NextRowKey=nonsense")
        )

    def refused(self, store) -> None:
        self.attempt(store.table("games"))
        self.attempt(AzureTable(store, "games").get("p", "r"))
        self.attempt(AzureTable(store, "games").transact("p", [Operation.insert("r", {})]))


@pytest.fixture
def use(run, overheard) -> Use:
    return Use(run, overheard)


@pytest.mark.parametrize("kind", ["key", "signature"])
def test_not_while_a_store_is_used(run, use, overheard, account, signature, kind):
    credentials = {
        "key": f"AccountName={account.name};AccountKey={account.key}",
        "signature": f"SharedAccessSignature={signature}",
    }
    with relayed(account.endpoint, run) as relay:
        store = connect(f"TableEndpoint={relay.endpoint};{credentials[kind]}")
        use.everything(store)
        run(store.close())
        signed = authorizations(relay.sent)
        urls = relay.sent.decode()

    assert bool(signed) == (kind == "key")
    assert any(form in urls for form in forms(raw_signature(signature))) == (kind == "signature")
    assert {
        "ConcurrencyConflictError",
        "DuplicateEventError",
        "RowNotFoundError",
        "TableNotFoundError",
    } <= set(use.errors)
    # It was listened to, also to Azure's own log of requests.
    assert "Request URL" in overheard.text()
    assert "Operation 0: the row 'missing' does not exist." in overheard.text()
    assert overheard.leaks([account.key, raw_signature(signature), signature, *signed]) == []


@pytest.mark.parametrize("kind", ["key", "signature"])
@pytest.mark.parametrize("answers", [True, False])
def test_not_when_credentials_are_refused_or_nobody_answers(
    run, use, overheard, account, signature, kind, answers
):
    wrong = base64.b64encode(b"a wrong key+/" * 4).decode()
    sent = {
        "key": f"AccountName={account.name};AccountKey={wrong}",
        "signature": f"SharedAccessSignature={signature.replace('sig=', 'sig=AAAA')}",
    }
    with relayed(account.endpoint, run) as relay:
        store = connect(f"TableEndpoint={relay.endpoint};{sent[kind]}")
        if answers:
            use.refused(store)
    if not answers:
        use.refused(store)
    run(store.close())

    assert use.errors == ["StoreUrlError" if answers else "StoreUnavailableError"] * 3
    secrets = [wrong, raw_signature(signature), signature, *authorizations(relay.sent)]
    assert overheard.leaks(secrets) == []


@pytest.mark.parametrize("form", ["url", "environment"])
def test_not_of_a_url_with_a_signature(run, use, overheard, account, signature, form, monkeypatch):
    # The emulator speaks no TLS: the connection fails in the middle.
    url = f"{account.endpoint.replace('http:', 'https:')}?{signature}"
    monkeypatch.setenv("EVENT_STORE", url)
    store = connect(url if form == "url" else "env:EVENT_STORE")

    use.refused(store)
    run(store.close())

    assert use.errors == ["StoreUnavailableError"] * 3
    assert store.url == account.endpoint.replace("http:", "https:")
    assert overheard.leaks([raw_signature(signature), signature]) == []


class SignedIn:
    """Stands for azure-identity's default credential."""

    def __init__(self) -> None:
        self.given = 0

    async def get_token(self, *_scopes, **_options) -> AccessToken:
        self.given += 1
        return AccessToken(TOKEN, 4102444800)

    async def close(self) -> None:
        pass


def test_not_of_one_who_is_signed_in(run, use, overheard, account, monkeypatch):
    credential = SignedIn()
    module = types.ModuleType("azure.identity.aio")
    module.DefaultAzureCredential = lambda: credential  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "azure.identity", types.ModuleType("azure.identity"))
    monkeypatch.setitem(sys.modules, "azure.identity.aio", module)
    monkeypatch.setattr("eventstore.backends.azure._has_identity", lambda: True)
    store = connect(account.endpoint.replace("http:", "https:"))

    use.refused(store)
    run(store.close())

    assert credential.given > 0
    assert use.errors == ["StoreUnavailableError"] * 3
    assert overheard.leaks([TOKEN]) == []


def carry_in_a_record(secret):
    logging.getLogger("aiohttp.client").debug("Sent.", extra={"headers": {"Authorization": secret}})


def fail_with(secret):
    try:
        int(secret)
    except ValueError:
        raise RuntimeError("It failed.") from None


def test_whoever_says_one_in_any_form_is_heard(overheard, signature):
    secret = raw_signature(signature)
    for form in forms(secret):
        for say in (carry_in_a_record, print):
            assert overheard.leaks([secret]) == []
            say(f"... {form} ...")
            assert overheard.leaks([secret]) == [secret]
            overheard._caplog.clear()
            overheard._told.clear()
    with pytest.raises(RuntimeError) as raised:
        fail_with(secret)
    overheard.note(raised.value)
    assert overheard.leaks([secret]) == [secret]
