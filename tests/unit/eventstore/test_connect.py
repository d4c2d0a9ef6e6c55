import pickle
import traceback

import pytest

from eventstore import StoreUrlError, connect
from eventstore.backends.azure import AzureStore
from eventstore.backends.memory import MemoryStore
from eventstore.backends.postgres import PostgresStore
from eventstore.backends.sqlite import SqliteStore

SECRET = "c2VjcmV0LWtleQ=="
SIGNATURE = "sv=2019-02-02&sig=s3cr3tsignature%3D"


AZURITE, ACCOUNT = "http://127.0.0.1:10002/devstoreaccount1", "https://acct.table.core.windows.net"
COSMOS = "https://acct.table.cosmos.azure.com:443"
SIGNED = [
    f"DefaultEndpointsProtocol=https;AccountName=acct;AccountKey={SECRET};EndpointSuffix=core.windows.net",
    f"TableEndpoint={ACCOUNT};SharedAccessSignature=?{SIGNATURE}",
    f"{ACCOUNT}/?{SIGNATURE}",
]


@pytest.mark.parametrize(
    ("kind", "scope", "url", "shown"),
    [
        (MemoryStore, "process", "memory:", "memory:"),
        (MemoryStore, "process", "memory:games", "memory:games"),
        (SqliteStore, "machine", "sqlite:///games.db", "sqlite:///games.db"),
        (SqliteStore, "machine", "sqlite:////tmp/games.db", "sqlite:////tmp/games.db"),
        (AzureStore, "network", "azurite", AZURITE),
        (AzureStore, "network", "UseDevelopmentStorage=true", AZURITE),
        (AzureStore, "network", "azurite://example.org:99", "http://example.org:99/devstoreaccount1"),
        (AzureStore, "network", f"TableEndpoint={COSMOS}/;AccountName=acct;AccountKey={SECRET}", COSMOS),
        *[(AzureStore, "network", url, ACCOUNT) for url in SIGNED],
        (PostgresStore, "network", "postgresql://me:s3cr3t@host/db?schema=s", "postgresql://host:5432/db"),
    ],
)
def test_each_form_of_url_is_understood_and_no_secret_is_shown(kind, scope, url, shown):
    store = connect(url)

    assert isinstance(store, kind)
    assert (store.scope, store.url) == (scope, shown)
    told = f"{store!r} {store.url} {getattr(store, 'account', '')!r} {getattr(store, 'account', '')}"
    assert not any(secret in told for secret in ("c2VjcmV0", "secret", "s3cr3t"))


def test_a_url_can_stand_in_an_environment_variable_and_memory_is_shared_by_its_name(monkeypatch):
    assert connect("memory:") is not connect("memory:")
    assert connect("memory:shared") is not connect("memory:other")
    for url in ("memory:shared", "memory:shared\r\n"):  # as of a file of secrets
        monkeypatch.setenv("GAMES_STORE", url)
        assert connect("env:GAMES_STORE") is connect("memory:shared")
    for url in ("", "env:OTHER"):
        monkeypatch.setenv("GAMES_STORE", url)
        with pytest.raises(StoreUrlError, match="GAMES_STORE"):
            connect("env:GAMES_STORE")
    monkeypatch.delenv("GAMES_STORE")
    with pytest.raises(StoreUrlError, match="GAMES_STORE"):
        connect("env:GAMES_STORE")


WRONG = [
    "",
    "games.db",
    "sqlite:games.db",
    "sqlite://games.db",
    "sqlite:///",
    "sqlite:///:memory:",
    "postgres://user:s3cr3tpassword@host/db?colour=red",
    "http://acct.table.core.windows.net",
    "https://",
    "https://user:s3cr3tpassword@acct.table.core.windows.net",
    "https://acct.table.core.windows.net/?key=s3cr3tpassword",
    "azurite://",
    "azurite://host:s3cr3tport",
    "azurite://me:s3cr3tpassword@host:1",
    "postgresql://me:s3cr3t@[host/db",
    "s3cr3t.db;AccountKey=czNjcjN0",
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


@pytest.mark.parametrize(
    ("url", "write"),
    [
        ("garage.db", "write sqlite:///garage.db."),
        ("./of/garage.sqlite3", "write sqlite:///of/garage.sqlite3."),
        (".", "write sqlite:///store.db."),
        ("folder", "write sqlite:///folder/store.db."),
        ("log.csv", "such as sqlite:///store.db."),
        ("log.parquet", "such as sqlite:///store.db."),
        ("postgresql+psycopg://host/db", "write postgresql://."),
        ("kafka://host", "publish outputs there (--to)."),
        ("mysql://host/db", "Versions cannot be stored in mysql: use one of these."),
        ("redis://host", "Versions cannot be stored in redis: use one of these."),
        ("nowhere", "memory:NAME."),
        ("", "memory:NAME."),
    ],
)
def test_an_unknown_url_is_told_the_forms_and_what_to_write(url, write, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()

    with pytest.raises(StoreUrlError, match=r"sqlite:///.*azurite.*https://.*env:NAME.*memory:") as raised:
        connect(url)

    assert str(raised.value).endswith(write)


def test_an_account_url_is_used_with_azure_identity_which_is_asked_for_by_name(monkeypatch):
    monkeypatch.setattr("eventstore.backends.azure._has_identity", lambda: True)
    store = connect(f"{ACCOUNT}/")
    assert isinstance(store, AzureStore)
    assert (store.url, store.account.signing) == (ACCOUNT, "identity")

    monkeypatch.setattr("eventstore.backends.azure._has_identity", lambda: False)
    with pytest.raises(StoreUrlError, match=r"consistent-messaging\[azure\]"):
        connect(ACCOUNT)
