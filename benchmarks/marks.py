"""Parts of a document that commands write anew, each between `<!-- NAME -->` and `<!-- end of NAME -->`."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from benchmarks.catalogue import CONTENDERS
from benchmarks.results import Results
from benchmarks.sizes import ONE_AT_A_TIME


def marks(name: str) -> tuple[str, str]:
    """Return the lines between which a part stands."""
    return f"<!-- {name} -->", f"<!-- end of {name} -->"


def check_marks(document: Path, names: Iterable[str]) -> None:
    """Raise `ValueError` when a document lacks the marks of a part."""
    text = document.read_text()
    for name in names:
        _split(document, text, name)


def put_parts(document: Path, parts: Mapping[str, str]) -> None:
    """Replace parts of a document, given by name, all or none. Raises `ValueError` when it lacks their marks."""
    text = document.read_text()
    for name, part in parts.items():
        before, after = _split(document, text, name)
        text = f"{before}{part}{after}"
    document.write_text(text)


def _split(document: Path, text: str, name: str) -> tuple[str, str]:
    """Return what stands before and after a part, with its marks."""
    begin, end = marks(name)
    before, found_begin, rest = text.partition(f"{begin}\n")
    _, found_end, after = rest.partition(end)
    if not (found_begin and found_end):
        message = f"{document} lacks the lines {begin} and {end}, between which the table is put."
        raise ValueError(message)
    return before + found_begin, found_end + after


PART = "results"
BEGIN, END = marks(PART)


def put_into(document: Path, results: Results) -> None:
    """Replace what stands between the marks of a document. Raises `ValueError` when it has none."""
    put_parts(document, {PART: markdown(results)})


def markdown(results: Results) -> str:
    """Return the contenders, and the ratios that have goals, as two tables."""
    return "\n".join(_lines(results)) + "\n"


def _lines(results: Results) -> Iterator[str]:
    size = results.size
    yield (
        f"Size `{size.name}`: median of {size.runs} turns on {results.cores} cores, streams of {size.per_stream} "
        f"messages, {results.begun:%Y-%m-%d}."
    )
    yield ""
    yield "| contender | messages/s |"
    yield "|---|---:|"
    for name, measurements in results.measured.items():
        star = " *" if CONTENDERS[name].amount in ONE_AT_A_TIME else ""
        yield f"| `{name}`{star} | {statistics.median(one.rate for one in measurements):,.0f} |"
    yield ""
    yield "| ratio | measured | goal |"
    yield "|---|---:|---:|"
    for ratio in results.ratios():
        if ratio.comparison.goal is not None:
            goal = f"≥ {ratio.comparison.goal:g}{'' if ratio.is_met else ', missed'}"
            yield f"| {ratio.comparison.name} | {ratio.median:.2f} | {goal} |"
    for name, median, most in results.limits():
        yield f"| {name} | {median:.0f} | ≤ {most:g}{'' if median <= most else ', missed'} |"
