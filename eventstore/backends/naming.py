"""The names that a table can have, the same for every backend."""

from __future__ import annotations

import re

from eventstore.errors import TableNameError

_TABLE_NAME = re.compile(r"[A-Za-z][A-Za-z0-9]{2,62}")


def table_name(name: str) -> str:
    """Return the name in lower case: a table's name is the same in any case.

    Raises `TableNameError` for a name that some table service does not take.
    """
    if not _TABLE_NAME.fullmatch(name) or name.lower() == "tables":
        raise TableNameError(
            f"The table name {name!r} cannot be used: it must be 3 to 63 ASCII letters and digits, "
            "the first a letter, and not 'tables'."
        )
    return name.lower()
