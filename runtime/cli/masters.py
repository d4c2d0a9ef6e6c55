"""Where Spark works, as `--master` and `--remote` say it."""

from __future__ import annotations

import re

from runtime.errors import UsageError

_FORMS = re.compile(
    r"local(\[\s*(\d+|\*)\s*(,\s*\d+\s*)?\])?|local-cluster\[.+\]|(spark|k8s)://.+|yarn",
)


_REMOTE = re.compile(r"sc://[^/]+(/.*)?")


def check_remote(url: str) -> None:
    """Raise `UsageError` for what is no url of Spark Connect."""
    if not _REMOTE.fullmatch(url):
        raise UsageError(f"{url!r} is no url of Spark Connect: write sc://HOST:PORT.")


def place_of_work(master: str | None, remote: str | None) -> str | None:
    """Return where Spark works, checked: a master, or the url of a server of Spark Connect; None where it does not.

    Raises `UsageError` for what is neither.
    """
    if remote is not None:
        check_remote(remote)
        return remote
    if master is not None:
        check_master(master)
    return master


def check_master(master: str) -> None:
    """Raise `UsageError` for what no Spark takes for a master."""
    if not _FORMS.fullmatch(master):
        raise UsageError(
            f"{master!r} is no master of Spark: write local[*], local[4], spark://HOST:PORT, yarn or k8s://URL."
        )
