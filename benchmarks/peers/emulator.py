"""The account of the storage emulator: the same everywhere, documented, and no secret."""

from __future__ import annotations

ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


def endpoint_of(url: str) -> str:
    """Return the address of the account behind a store url of the emulator."""
    return f"http://{url.removeprefix('azurite://')}/{ACCOUNT}"
