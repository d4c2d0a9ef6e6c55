"""Masters of Spark, as `--master` takes them."""

from __future__ import annotations

import re

from runtime.errors import UsageError

_FORMS = re.compile(
    r"local(\[\s*(\d+|\*)\s*(,\s*\d+\s*)?\])?|local-cluster\[.+\]|(spark|k8s)://.+|yarn",
)


def check_master(master: str) -> None:
    """Raise `UsageError` for what no Spark takes for a master."""
    if not _FORMS.fullmatch(master):
        raise UsageError(
            f"{master!r} is no master of Spark: write local[*], local[4], spark://HOST:PORT, yarn or k8s://URL."
        )
