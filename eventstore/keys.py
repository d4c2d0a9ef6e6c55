r"""Reversible escaping of partition and row keys with arbitrary characters.

A table service rejects `/ \ # ?` and control characters in keys, and has decoded `%` twice. Its emulator mishandles
quotes, commas and line separators. Each of these, and `~` itself, is stored as `~` and two hexadecimal digits, a line
separator as `~u` and four. UUIDs, numbers and dates are stored unchanged.

Keys are ordered as stored: for ASCII keys that is text order, except that escaped characters sort after letters and
digits.
"""

import re
from functools import lru_cache
from hashlib import sha512

from eventstore.errors import InvalidKeyError, TableNameError

# Table names valid in every backend.

_TABLE_NAME = re.compile(r"[A-Za-z][A-Za-z0-9]{2,62}")


def table_name(name: str) -> str:
    """Return the name in lower case. Raises `TableNameError` for a name that is not valid in every table service."""
    if not _TABLE_NAME.fullmatch(name) or name.lower() == "tables":
        raise TableNameError(
            f"The table name {name!r} cannot be used: it must be 3 to 63 ASCII letters and digits, "
            "the first a letter, and not 'tables'."
        )
    return name.lower()


MAX_KEY_UNITS = 512
"""The maximum length of an escaped key, in UTF-16 units."""

PLAIN_CHARACTERS = "".join(
    character for character in map(chr, range(ord(" "), ord("~"))) if character not in "/\\#?%',"
)
"""The ASCII characters that are stored unchanged, in order."""

BETWEEN_KEYS = "\t"
"""Separates partition and row key. It is escaped in keys, and sorts before all characters of stored keys."""

_REMEMBERED = 1024
_SHOWN = 60
_SHORT = MAX_KEY_UNITS // 2
_ESCAPED_CHARACTERS = "/\\\\#?%',~\x00-\x1f\x7f-\x9f\u2028\u2029"
_ESCAPED = re.compile(f"[{_ESCAPED_CHARACTERS}]")
_ESCAPE = re.compile("~(?:u([0-9A-F]{4})|([0-9A-F]{2}))")
_find_unclean = re.compile(f"[{_ESCAPED_CHARACTERS}\ud800-\udfff]").search


@lru_cache(_REMEMBERED)
def escape(key: str) -> str:
    """Return the key in its stored form. Raises `InvalidKeyError` if the key is empty, too long or invalid text."""
    # The fast path of nearly all keys.
    if key and len(key) <= _SHORT and _find_unclean(key) is None:
        return key
    if not key:
        raise InvalidKeyError("A partition or row key is empty.")
    return escape_bound(key)


@lru_cache(_REMEMBERED)
def escape_bound(key: str) -> str:
    """Return a bound of a key range in its stored form. Unlike a key, a bound may be empty."""
    if len(key) <= _SHORT and _find_unclean(key) is None:
        return key
    escaped = _ESCAPED.sub(_escape_character, key)
    try:
        units = len(escaped.encode("utf-16-le")) // 2
    except UnicodeEncodeError:
        raise InvalidKeyError(f"The key {_shown(key)} is not valid text: it has a lone surrogate.") from None
    if units > MAX_KEY_UNITS:
        raise InvalidKeyError(
            f"The key {_shown(key)} takes {units} UTF-16 units once escaped; the limit is {MAX_KEY_UNITS}."
        )
    return escaped


def unescape(stored: str) -> str:
    """Return the key whose stored form is given."""
    if "~" not in stored:
        return stored
    return _ESCAPE.sub(lambda match: chr(int(match[1] or match[2], 16)), stored)


def _escape_character(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"~{code:02X}" if code <= 0xFF else f"~u{code:04X}"  # noqa: PLR2004 - two digits, or four


def _shown(key: str) -> str:
    return ascii(key) if len(key) <= _SHOWN else ascii(key[:_SHOWN]) + "..."


# Distributing keys over a fixed number of shards.

_MULTIPLIER = 2862933555777941757
_MASK_64 = 2**64 - 1


class Shard:
    """Shards by jump consistent hashing (Lamping and Veach): an added shard moves as few keys as possible."""

    @staticmethod
    def resolve(key: str | bytes | int, total: int) -> int:
        """Return the shard of a key, from 0 to `total` - 1. Text is hashed as UTF-16. An integer is the hash."""
        if total < 1:
            raise ValueError(f"There must be at least one shard, not {total}.")
        if isinstance(key, str):
            key = key.encode("utf-16-le", "surrogatepass")
        if isinstance(key, bytes):
            key = int.from_bytes(sha512(key).digest()[-8:], "little")
        state = key & _MASK_64
        shard, following = -1, 0
        while following < total:
            shard = following
            state = (state * _MULTIPLIER + 1) & _MASK_64
            following = int((shard + 1) * ((1 << 31) / ((state >> 33) + 1)))
        return shard
