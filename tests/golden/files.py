"""The golden files: one of JSON for each scenario and snapshot, compared line by line."""

import difflib
import json
from collections.abc import Callable
from pathlib import Path

from tests.golden.interfaces import SNAPSHOTS
from tests.golden.logs import FOLDER
from tests.golden.scenarios import SCENARIOS, Facts

_SHOWN = 60


def _on_spark(folder: Path) -> Facts:
    from runtime.spark import build_session
    from tests.golden.batches import batches

    return batches(build_session("local[2]"), folder)


ALL: dict[str, Callable[[Path], Facts]] = {**SNAPSHOTS, **SCENARIOS, "batches": _on_spark}


def write(name: str, found: Facts) -> None:
    (FOLDER / f"{name}.json").write_text(_text(found))


def difference(name: str, found: Facts) -> str:
    """Return how what was found differs from the file, and how to renew that; nothing if it does not."""
    before = (FOLDER / f"{name}.json").read_text()
    lines = list(
        difflib.unified_diff(before.splitlines(), _text(found).splitlines(), "golden", "today", "", "", 2, "")
    )
    if not lines:
        return ""
    more = f"\n... {len(lines) - _SHOWN} lines more" if len(lines) > _SHOWN else ""
    return (
        f"{name} is not what tests/golden/corpus/{name}.json says. If it was changed on purpose, run "
        f"`python -m tests.golden --write {name}`, and review the difference:\n"
        + "\n".join(lines[:_SHOWN])
        + more
    )


def _text(found: Facts) -> str:
    """Return facts as JSON with one line for each short value."""
    return _lines(json.loads(json.dumps(found)), "") + "\n"


def _lines(value: Facts, indent: str) -> str:
    flat = json.dumps(value, ensure_ascii=False, sort_keys=True)
    if len(indent) + len(flat) <= 150 or not isinstance(value, dict | list) or not value:
        return flat
    inner = indent + " "
    if isinstance(value, list):
        return "[\n" + ",\n".join(inner + _lines(each, inner) for each in value) + f"\n{indent}]"
    parts = (f"{inner}{json.dumps(name)}: {_lines(value[name], inner)}" for name in sorted(value))
    return "{\n" + ",\n".join(parts) + f"\n{indent}}}"
