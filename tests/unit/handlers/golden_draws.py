"""Compare the draws of this Python with those written down; needs nothing but the standard library.

python golden_draws.py DRAWS_MODULE GOLDEN_JSON
"""

import importlib.util
import json
import sys
from pathlib import Path


def differences(module_file, golden_file):
    """Give a line for each value that is another one."""
    spec = importlib.util.spec_from_file_location("draws", module_file)
    assert spec is not None
    assert spec.loader is not None
    draws = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(draws)
    for golden in json.loads(Path(golden_file).read_text(encoding="utf-8")):
        seed = draws.Seed(*golden["seed"])
        for kind, name in (("guid", "guids"), ("message", "message_ids")):
            for number, expected in enumerate(golden[name]):
                yield from unlike(f"{kind} {number}", str(seed.guid(kind, number)), expected)
        drawn = draws.SeededRandom(seed)
        for name, arguments, options, expected in golden["calls"]:
            value = getattr(drawn, name)(*arguments, **options)
            # A shuffled list is the one that was given.
            value = arguments[0] if name == "shuffle" else value
            value = value.hex() if isinstance(value, bytes) else value
            yield from unlike(f"{name}{tuple(arguments)} {options}", value, expected)


def unlike(what, value, expected):
    """Give a line when a value is another one."""
    if (value, type(value)) != (expected, type(expected)):
        yield f"{what} gave {value!r} instead of {expected!r}"


if __name__ == "__main__":
    found = list(differences(*sys.argv[1:]))
    print(*found, sep="\n")
    print(sys.version.split()[0], "differs" if found else "draws the same")
    sys.exit(bool(found))
