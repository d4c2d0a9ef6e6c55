"""Names that no other test of this process has: of tables, and of stores in memory."""

from itertools import count

_numbers = count(1)


def new_name() -> str:
    return f"table{next(_numbers)}"
