from __future__ import annotations

import pickle
import traceback

import pytest

from eventstore import Store, StoreUrlError, connect
from eventstore.backends.azure import AzureStore
from eventstore.backends.memory import MemoryStore
from eventstore.backends.sqlite import SqliteStore

SECRET = "c2VjcmV0LWtleQ=="
SIGNATURE = "sv=2019-02-02&sig=s3cr3tsignature%3D"


@pytest.mark.parametrize(
    ("url", "kind", "scope", "shown"),
    [
        ("memory:", MemoryStore, "process", "memory:"),
        ("memory:games", MemoryStore, "process", "memory:games"),
        ("sqlite:///games.db", SqliteStore, "machine", "sqlite:///games.db"),
        ("sqlite:////tmp/games.db", SqliteStore, "machine", "sqlite:////tmp/games.db"),
        ("azurite", AzureStore, "network", "http://127.0.0.1:10002/devstoreaccount1"),
        ("azurite://example.org:99", AzureStore, "network", "http://example.org:99/devstoreaccount1"),
        ("UseDevelopmentStorage=true", AzureStore, "network", "http://127.0.0.1:10002/devstoreaccount1"),
        (
            f"DefaultEndpointsProtocol=https;AccountName=acct;AccountKey={SECRET};EndpointSuffix=core.windows.net",
            AzureStore,
            "network",
            "https://acct.table.core.windows.net",
        ),
        (
            f"TableEndpoint=https://acct.table.cosmos.azure.com:443/;AccountName=acct;AccountKey={SECRET}",
            AzureStore,
            "network",
            "https://acct.table.cosmos.azure.com:443",
        ),
        (
            f"TableEndpoint=https://acct.table.core.windows.net;SharedAccessSignature=?{SIGNATURE}",
            AzureStore,
            "network",
            "https://acct.table.core.windows.net",
        ),
        (
            f"https://acct.table.core.windows.net/?{SIGNATURE}",
            AzureStore,
            "network",
            "https://acct.table.core.windows.net",
        ),
    ],
)
def test_each_form_of_url_is_understood(url, kind, scope, shown):
    store = connect(url)

    assert isinstance(store, kind)
    assert (store.scope, store.url) == (scope, shown)


def test_a_url_can_stand_in_an_environment_variable(monkeypatch):
    monkeypatch.setenv("GAMES_STORE", "memory:games-of-the-environment")

    assert connect("env:GAMES_STORE") is connect("memory:games-of-the-environment")


@pytest.mark.parametrize("value", [None, "", "env:OTHER"])
def test_an_environment_variable_without_a_url_is_an_error(monkeypatch, value):
    monkeypatch.delenv("GAMES_STORE", raising=False)
    if value is not None:
        monkeypatch.setenv("GAMES_STORE", value)

    with pytest.raises(StoreUrlError, match="GAMES_STORE"):
        connect("env:GAMES_STORE")


def test_memory_is_private_unless_it_has_a_name():
    assert connect("memory:") is not connect("memory:")
    assert connect("memory:shared") is connect("memory:shared")
    assert connect("memory:shared") is not connect("memory:other")


WRONG = [
    "",
    "games.db",
    "sqlite:games.db",
    "sqlite://games.db",
    "sqlite:///",
    "sqlite:///:memory:",
    "postgres://user:s3cr3tpassword@host/db",
    "http://acct.table.core.windows.net",
    "https://",
    "https://user:s3cr3tpassword@acct.table.core.windows.net",
    "https://acct.table.core.windows.net/?key=s3cr3tpassword",
    "azurite://",
    "azurite://host:s3cr3tport",
    "azurite://me:s3cr3tpassword@host:1",
    "AccountName=acct",
    "AccountName=acct;AccountKey=s3cr3t-that-is-no-base64!",
    "AccountKey=czNjcjN0;TableEndpoint=https://acct.table.core.windows.net",
    "SharedAccessSignature=sig=s3cr3t;AccountName=",
    "TableEndpoint=ftp://s3cr3t;AccountName=acct;AccountKey=czNjcjN0",
    "TableEndpoint=https://acct.table.core.windows.net/?sig=s3cr3t;AccountName=a;AccountKey=czNjcjN0",
]


@pytest.mark.parametrize("url", WRONG)
def test_a_wrong_url_is_an_error_that_repeats_no_secret(url):
    with pytest.raises(StoreUrlError) as raised:
        connect(url)

    told = "".join(traceback.format_exception(raised.value)) + repr(raised.value)
    told = "\n".join(line for line in told.splitlines() if "connect(url)" not in line)
    assert "s3cr3t" not in told
    assert "czNjcjN0" not in told
    assert pickle.loads(pickle.dumps(raised.value)).args == raised.value.args


def test_an_unknown_url_is_told_the_forms():
    with pytest.raises(StoreUrlError, match=r"sqlite:///.*azurite.*https://.*env:NAME.*memory:"):
        connect("redis://host")


@pytest.mark.parametrize(
    "url",
    [
        f"AccountName=acct;AccountKey={SECRET}",
        f"TableEndpoint=https://acct.table.core.windows.net;SharedAccessSignature={SIGNATURE}",
        f"https://acct.table.core.windows.net?{SIGNATURE}",
    ],
)
def test_nothing_that_can_be_printed_of_a_store_shows_its_secret(url):
    store = connect(url)
    assert isinstance(store, AzureStore)

    shown = f"{store.url} {store!r} {store.account!r} {store.account}"

    assert "c2VjcmV0" not in shown
    assert "secret" not in shown
    assert "s3cr3t" not in shown


def test_azure_identity_is_asked_for_by_name_when_it_is_missing(monkeypatch):
    monkeypatch.setattr("eventstore.backends.azure.store._has_identity", lambda: False)

    with pytest.raises(StoreUrlError, match=r"consistent-messaging\[azure\]"):
        connect("https://acct.table.core.windows.net")


def test_an_account_url_is_used_with_azure_identity(monkeypatch):
    monkeypatch.setattr("eventstore.backends.azure.store._has_identity", lambda: True)

    store = connect("https://acct.table.core.windows.net/")

    assert isinstance(store, AzureStore)
    assert (store.url, store.account.signing) == ("https://acct.table.core.windows.net", "identity")


def test_connecting_opens_nothing(tmp_path):
    store: Store = connect(f"sqlite:///{tmp_path}/folder/store.db")

    assert store.url.endswith("store.db")
    assert list(tmp_path.iterdir()) == []
