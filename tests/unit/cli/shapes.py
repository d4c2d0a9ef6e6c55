"""The documents that commands print, as scripts/reference/json.md describes them."""

import json
import re
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

_PAGE = Path(__file__).parents[3] / "scripts" / "reference" / "json.md"
_SAME = {"letters discard": "letters", "letters list": "letters", "import": "export"}
_KINDS: dict[str, type | tuple[type, ...]] = {
    "text": str, "time": str, "integer": int, "number": (int, float), "boolean": bool
}  # fmt: skip


@cache
def shapes() -> dict[str, list[Any]]:
    """Return the shapes of each command; a document may be one of a list that is all there is in one, too."""
    parts = re.split(r"^## consistent (.*)$", _PAGE.read_text(), flags=re.MULTILINE)[1:]
    found = {}
    for name, text in zip(parts[::2], parts[1::2], strict=True):
        whole = [json.loads(each) for each in re.findall(r"```json\n(.*?)```", text, re.DOTALL)]
        lists = [each[0] for shape in whole if len(shape) == 1 for each in shape.values()]
        found[name] = [*whole, *(each for each in lists if isinstance(each, dict))]
    return found


def document_of(printed: str, *arguments: str) -> Any:
    """Return the document that a command has printed, which has one of its shapes."""
    document = json.loads(printed)
    words = " ".join(arguments[:2])
    names = ["letters", "run"] if words == "letters redrive" else [_SAME.get(words, arguments[0])]
    known = [shape for name in names for shape in shapes()[_SAME.get(name, name)]]
    problems = [problem(shape, document, arguments[0]) for shape in known]
    assert None in problems, problems
    return document


def problem(shape: Any, value: Any, at: str) -> str | None:
    """Return where a value has another shape, None for nowhere."""
    if isinstance(shape, str):
        kind = shape.removesuffix("?")
        if kind == "any" or (value is None and kind != shape):
            return None
        fits = isinstance(value, _KINDS[kind]) and isinstance(value, bool) == (kind == "boolean")
        if kind == "time" and fits:
            fits = datetime.fromisoformat(value).tzinfo is not None
        return None if fits else f"{at} is {value!r}, no {shape}"
    if type(value) is not type(shape):
        return f"{at} is {value!r}"
    if isinstance(shape, list):
        found = (problem(shape[0], each, f"{at}[{number}]") for number, each in enumerate(value))
    else:
        known = {name.removesuffix("?"): each for name, each in shape.items()}
        missing = [name for name in shape if name not in ("*", *value) and not name.endswith("?")]
        if missing or ("*" not in known and value.keys() - known.keys()):
            return f"{at} has {sorted(value)}, and not {missing}"
        found = (
            problem(known.get(name, known.get("*")), each, f"{at}.{name}") for name, each in value.items()
        )
    return next((each for each in found if each is not None), None)
