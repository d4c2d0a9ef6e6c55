"""Opens a store from its URL.

Nothing is sent or opened before `Store.table` is awaited, and only the backend of the URL is imported. Errors never
show the URL, which may contain a secret.
"""

import os
from pathlib import Path

from eventstore.errors import StoreUrlError
from eventstore.port import Store

_FILE = "sqlite:///"
_NAMED = " that the store URL names"
_FORMS = (
    "The form of the store URL is unknown. Known are: sqlite:///relative.db, sqlite:////absolute/path.db, "
    "postgresql://USER@HOST:PORT/DATABASE, azurite, azurite://host:port, https://ACCOUNT.table.core.windows.net, a "
    "connection string of a storage account, env:NAME or file:PATH for an environment variable or a file that "
    "contains one of these, memory:, memory:NAME."
)


def connect(url: str) -> Store:
    """Return the store behind a URL. Raises `StoreUrlError` for an invalid URL.

    | URL | store |
    |---|---|
    | `sqlite:///relative.db`, `sqlite:////absolute/path.db` | one SQLite file |
    | `postgresql://USER:PASSWORD@HOST:PORT/DATABASE?schema=NAME` | a schema of a PostgreSQL database |
    | `memory:`, `memory:NAME` | memory of this process: a new store, or one shared by name |
    | `azurite`, `azurite://host:port` | the Azure Storage emulator |
    | `https://ACCOUNT.table.core.windows.net` | Azure Storage, authenticated by azure-identity |
    | a connection string | Azure Storage or Cosmos DB's Table API |
    | `env:NAME`, `file:PATH` | the URL in an environment variable or file |
    """
    url = resolve_reference(url, _NAMED)
    # Backends are imported on use, as each needs packages of its own.
    if url.startswith("sqlite:"):
        from eventstore.backends.sqlite import SqliteStore  # noqa: PLC0415 - loaded when asked for

        return SqliteStore(url)
    if url.startswith("memory:"):
        from eventstore.backends.memory import open_memory  # noqa: PLC0415 - loaded when asked for

        return open_memory(url)
    if url.startswith(("postgresql://", "postgres://")):
        try:
            from eventstore.backends.postgres import PostgresStore  # noqa: PLC0415 - loaded when asked for
        except ImportError as error:
            raise StoreUrlError(
                "PostgreSQL needs psycopg: pip install 'consistent-messaging[postgres]'."
            ) from error
        return PostgresStore(url)
    if not _is_of_azure(url):
        raise StoreUrlError(f"{_FORMS}{_instead_of(url)}")
    try:
        from eventstore.backends.azure import AzureStore, account_of  # noqa: PLC0415 - loaded when asked for
    except ModuleNotFoundError as error:
        raise StoreUrlError(
            f"A table service needs {error.name}: pip install 'consistent-messaging[azure]'."
        ) from error
    return AzureStore(account_of(url))


def check_form(url: str) -> None:
    """Raise `StoreUrlError` for an invalid URL, without contacting a service or importing its package."""
    if not (url.startswith(("env:", "file:", "postgresql://", "postgres://")) or _is_of_azure(url)):
        connect(url)


def _is_of_azure(url: str) -> bool:
    names = {part.partition("=")[0].strip().lower() for part in url.split(";")}
    is_connection_string = not names.isdisjoint({"accountname", "tableendpoint", "usedevelopmentstorage"})
    return is_connection_string or url == "azurite" or url.startswith(("azurite://", "https://"))


_NO_STORES = {"kafka", "mysql", "mssql", "redis", "rediss", "mongodb"}


def _instead_of(url: str) -> str:
    """Return a hint for an invalid URL, or "". A hint shows the URL only if it is plainly the path of a file."""
    scheme, colon, _ = url.partition(":")
    server, suffix = scheme.partition("+")[0], Path(url).suffix
    if colon and server == "postgresql":
        return " For PostgreSQL write postgresql://."
    if colon and server in _NO_STORES:
        where = ", and publish outputs there (--to)" if server == "kafka" else ""
        return f" Versions cannot be stored in {server}: use one of these{where}."
    if suffix in (".csv", ".parquet", ".json", ".jsonl", ".ndjson"):
        return " This looks like a message log: pass it with --messages, and name a store, such as sqlite:///store.db."
    if set(url) & set(";=:@?") or not (
        suffix in (".db", ".sqlite", ".sqlite3") or (url and Path(url).is_dir())
    ):
        return ""
    return f" For a file write sqlite:///{Path(url) / 'store.db' if Path(url).is_dir() else Path(url)}."


def portable_url(url: str) -> str:
    """Return a URL for other processes: no `env:` or `file:` reference, no relative path. May contain a secret."""
    url = resolve_reference(url, _NAMED)
    file = url.removeprefix(_FILE)
    return f"{_FILE}{Path(file).absolute()}" if file != url and file else url


def resolve_reference(text: str, that: str = "", error: type[Exception] = StoreUrlError) -> str:
    """Return the value behind `env:NAME` or `file:PATH`, or any other text unchanged. Raises `error` if it is missing.

    The message of the error names the variable or file, followed by `that`, such as `" that the store URL names"`.
    """
    scheme, _, name = text.partition(":")
    if scheme not in ("env", "file") or name.startswith("//"):
        return text
    if scheme == "env" and not name.isidentifier():  # may be a URL with a key, so it is not shown
        raise error("env: takes the name of an environment variable, not its value.")
    if scheme == "file" and not Path(name).is_file():
        raise error(f"There is no file {name}{that}.")
    # Files with secrets often end with a line break.
    value = (os.environ.get(name, "") if scheme == "env" else Path(name).read_text("utf-8")).strip()
    source = f"The environment variable {name}{that}" if scheme == "env" else f"The file {name}{that}"
    if not value:
        raise error(f"{source} is {'not set' if scheme == 'env' else 'empty'}.")
    if value.startswith("env:"):
        raise error(f"{source} refers to another variable: it must hold the value itself.")
    return value
