r"""Keys that collide often, and that tables and urls have trouble with.

Ranges are promised for ASCII keys only: beyond them some services compare UTF-16 units and others
characters. The two orders agree unless a character from U+E000 to U+FFFF meets one beyond U+FFFF. So row keys
have only the latter and partition keys only the former, and each range has the same rows everywhere.
"""

from __future__ import annotations

from hypothesis import strategies as st

LAST = "\U0010ffff"
"""The end of a range that takes in every row key of a program."""

BULKY_KEYS = ("bulky-1", "bulky-2")
"""Keys of the rows that are as large as rows can be; they are never merged into."""

_PLAIN = ["a", "b", "c", "A", "SS-HEAD", "fill-0500", "fill-0999", "1", "01", "1.0", "1e0", "NaN", "null"]
_TRICKY = [
    *("/", "a/b", "\\", "#", "a?b", "%", "50%", "%2F", "%252F", "'", "''"),
    *("it's", ",", "a,b", "~", "~2F", "~~"),
    *("\x00", "\t", "a\r\nb", "\x1f", "\x7f", "\x85", "\x9f", "\u2028"),
    *("\u2029", "\xa0", "a\u200bb", "x" * 512),
    *(".", "..", " ", " a", "a ", "+", "a+b", "a&b=c", "$1", "(", "')", '"', "*", ";", "<a>", "{}", "`", "|"),
    *("é", "e\u0301", "ß", "日本"),
]
_CHARACTERS = st.sampled_from("ab01/\\#?%',~ .+&\"é日\x00\n\x80\u2028")


def _keys(*more: str) -> st.SearchStrategy[str]:
    return st.one_of(
        st.sampled_from(_PLAIN),
        st.sampled_from([*_TRICKY, *more]),
        st.text(_CHARACTERS, min_size=1, max_size=6),
    )


ROW_KEYS = _keys("😀", "a😀", "👩\u200d🚀")
PARTITION_KEYS = _keys("\ufeffa", "ﬁ", "a\uffff")
WRONG_KEYS = st.sampled_from(
    ["", "x" * 513, "/" * 171, "é" * 513, "😀" * 257, "\x00" * 170 + "abc", "half \ud83d", "\ude00"]
)


def ends_of_ranges(keys: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Return keys, and what lies before, between and after them."""
    return st.one_of(
        keys,
        keys.filter(lambda key: len(key) < 100).map(lambda key: key + "!"),
        keys.map(lambda key: key[:-1]),
        st.sampled_from(["", "!", "a", "b~", "~", "\x7f"]),
    )
