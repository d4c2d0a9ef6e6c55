"""A module that counts."""

_numbers = {"last": 0}
last = ""


def following():
    _numbers["last"] += 1  # expect: CM801
    return _numbers["last"]
