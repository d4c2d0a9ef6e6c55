"""Which account a url means, and what its requests are signed with."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit

from eventstore.errors import StoreUrlError

# The emulator's account is the same everywhere and documented, its key is no secret.
_EMULATOR_ACCOUNT = "devstoreaccount1"
_EMULATOR_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
_EMULATOR_HOST = "127.0.0.1:10002"
_LOCAL_HOSTS = frozenset({"127.0.0.1", "localhost", "::1"})

Signing = Literal["shared key", "shared access signature", "identity"]


@dataclass(frozen=True, slots=True)
class Account:
    """A table service's endpoint, with what signs its requests. Its text form shows no secret."""

    endpoint: str
    """Scheme, host and path, without a slash at the end."""

    signing: Signing
    name: str = ""
    key: str = field(default="", repr=False)
    """In base64."""

    signature: str = field(default="", repr=False)

    @property
    def is_cosmos(self) -> bool:
        """Whether the endpoint is one of Cosmos DB."""
        return ".cosmos." in self.endpoint or ".cosmosdb." in self.endpoint

    @property
    def is_local(self) -> bool:
        """Whether the endpoint is on this machine, so that no proxy stands in between."""
        return urlsplit(self.endpoint).hostname in _LOCAL_HOSTS


def account_of(url: str) -> Account:
    """Return the account that a url or a connection string means. Raises `StoreUrlError`."""
    if url == "azurite":
        return _emulator(_EMULATOR_HOST)
    if url.startswith("azurite://"):
        return _emulator(_checked_host(url.removeprefix("azurite://").rstrip("/"), "azurite://host:port"))
    if url.startswith("https://"):
        return _of_https(url)
    return _of_connection_string(url)


def _emulator(host: str) -> Account:
    return Account(f"http://{host}/{_EMULATOR_ACCOUNT}", "shared key", _EMULATOR_ACCOUNT, _EMULATOR_KEY)


def _of_https(url: str) -> Account:
    form = "https://ACCOUNT.table.core.windows.net"
    parts = urlsplit(url)
    endpoint = f"https://{_checked_host(parts.netloc, form)}{parts.path.rstrip('/')}"
    if not parts.query:
        return Account(endpoint, "identity")
    if "sig=" not in parts.query:
        raise StoreUrlError(f"A store url of the form {form} has no query but a shared access signature.")
    return Account(endpoint, "shared access signature", signature=parts.query)


def _checked_host(host: str, form: str) -> str:
    try:
        parts = urlsplit(f"//{host}")
        usable = bool(parts.hostname) and parts.netloc == host and "@" not in host and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise StoreUrlError(f"The store url has no host that can be used; its form is {form}.")
    return host


def _of_connection_string(text: str) -> Account:
    settings = {}
    for part in text.split(";"):
        name, separator, value = part.strip().partition("=")
        if name and separator:
            settings[name.strip().lower()] = value.strip()
    if settings.get("usedevelopmentstorage", "").lower() == "true":
        return _emulator(_EMULATOR_HOST)
    name = settings.get("accountname", "")
    endpoint = _endpoint(settings, name)
    if settings.get("accountkey") and name:
        return Account(endpoint, "shared key", name, _checked_key(settings["accountkey"]))
    if settings.get("sharedaccesssignature"):
        signature = settings["sharedaccesssignature"].removeprefix("?")
        return Account(endpoint, "shared access signature", name, signature=signature)
    raise StoreUrlError(
        "The connection string has neither an AccountName with an AccountKey nor a SharedAccessSignature."
    )


def _endpoint(settings: dict[str, str], name: str) -> str:
    endpoint = settings.get("tableendpoint")
    if endpoint is None:
        if not name:
            raise StoreUrlError("The connection string has neither an AccountName nor a TableEndpoint.")
        scheme = settings.get("defaultendpointsprotocol", "https")
        endpoint = f"{scheme}://{name}.table.{settings.get('endpointsuffix', 'core.windows.net')}"
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or parts.query:
        raise StoreUrlError("The connection string's endpoint is none of http or https.")
    return f"{parts.scheme}://{_checked_host(parts.netloc, 'host:port')}{parts.path.rstrip('/')}"


def _checked_key(key: str) -> str:
    try:
        base64.b64decode(key, validate=True)
    except ValueError:
        raise StoreUrlError("The connection string's AccountKey is not base64.") from None
    return key
