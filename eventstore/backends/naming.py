"""The names that a table can have, the same for every backend."""

from __future__ import annotations

import re

from eventstore.errors import StoreUrlError

_TABLE_NAME = re.compile(r"[A-Za-z][A-Za-z0-9]{2,62}")


def check_table_name(name: str) -> None:
    """Raise `StoreUrlError` unless every table service takes the name. Upper and lower case are one name."""
    if not _TABLE_NAME.fullmatch(name) or name.lower() == "tables":
        raise StoreUrlError(
            f"The table name {name!r} cannot be used: it must be 3 to 63 ASCII letters and digits, "
            "the first a letter, and not 'tables'."
        )
