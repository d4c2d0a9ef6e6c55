"""Runs the fenced blocks of a page from top to bottom, as a reader would.

A comment above a block says what it is, where its language does not:

| comment | the block is |
|---|---|
| `<!-- file: NAME -->` | a file; all of them are written first |
| `<!-- change: A to B -->` | a diff that makes file B of file A |
| `<!-- run -->`, `<!-- run: 1 -->` | commands, with the exit code of the last one |
| `<!-- printed -->` | lines that the last command has printed |
| `<!-- shown: 1 -->` | a command after `$`, its exit code, and all that it prints |
| `<!-- fragment -->` | code that cannot be run alone |
| `<!-- elsewhere: KIND -->` | run by a test module of its own, with `tests.docs.pasting` |

Python without a comment is run; so are lines that begin with `consistent`.
"""

import re
import shlex
import subprocess
import sys
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path

from tests.docs.pasting import Block, beside_the_project, blocks
from tests.plugins.spark import Workplace

_NOT_RUN = {"mermaid", "toml", "yaml", "json", "diff"}
_FOR_DEVELOPERS = re.compile(
    r"(make|pip|python -m (tests|benchmarks|samples)|python scripts/|pipx|who |\.venv/bin/)"
)


@dataclass
class Reader:
    """Follows a page in a folder, and remembers what was printed."""

    place: Workplace
    environment: dict[str, str] = field(default_factory=dict)
    names: dict[str, object] = field(default_factory=lambda: {"__name__": "page"})
    last: str = ""
    printed: str = ""

    @property
    def folder(self) -> Path:
        """Where files are, and commands run."""
        return self.place.path

    def follow(self, block: Block) -> None:
        match block.mark or block.language:
            case "change":
                source, _, target = block.argument.partition(" to ")
                self._change(source, target, block.text)
            case "printed":  # a table folds what does not fit its column
                for line in block.text.splitlines():
                    assert _words(line) in _words(self.last), f"{line} is not in\n{self.last}"
            case "shown":
                command, _, shown = block.text.partition("\n")
                self._command(command.removeprefix("$ "), int(block.argument))
                assert self.last == shown
            case "run" if block.language != "python":
                *lines, last = _lines(block.text)
                for line in lines:
                    self._command(line)
                self._command(last, int(block.argument or 0))
            case "python" | "run":
                self._python(block.text)
            case "":
                lines = [line for line in _lines(block.text) if not _FOR_DEVELOPERS.match(line)]
                for line in lines:
                    assert line.startswith("consistent "), (
                        f"Nobody runs {line!r}: put a comment above its block"
                    )
                    self._command(line)

    def _change(self, source: str, target: str, diff: str) -> None:
        """Make one file of another by a diff without line numbers. Its context and removed lines must occur once."""
        lines = diff.splitlines(keepends=True)
        before, after = ("".join(line[1:] for line in lines if line.startswith((sign, " "))) for sign in "-+")
        text = (self.folder / source).read_text()
        assert text.count(before) == 1
        (self.folder / target).write_text(text.replace(before, after))

    def _command(self, line: str, expected: int = 0) -> None:
        program, *words = shlex.split(line)
        if program == "export":
            self.environment.update(dict(word.split("=", 1) for word in words))
            return
        if program == "consistent":
            done = self.place.consistent(*words, **self.environment)
        else:
            done = subprocess.run(
                ["bash", "-e", "-c", line], cwd=self.folder, env={**beside_the_project(), **self.environment},
                capture_output=True, text=True, check=False,
            )  # fmt: skip
        self.last = done.stdout + done.stderr
        self.printed += self.last
        assert done.returncode == expected, f"{line}\n{self.last}"

    def _python(self, code: str) -> None:
        with self.place.at_work(), redirect_stdout(StringIO()) as out:
            sys.path.append(str(self.folder))
            exec(compile(code, "the page", "exec", dont_inherit=True), self.names)
        self.last = out.getvalue()
        self.printed += self.last


def follow(page: str, reader: Reader) -> None:
    """Run the blocks of a page from top to bottom."""
    for block in blocks(page):
        if block.mark not in {"file", "fragment", "elsewhere"} and (
            block.mark or block.language not in _NOT_RUN
        ):
            reader.follow(block)


def _lines(text: str) -> list[str]:
    return text.replace("\\\n", "").strip().splitlines()


def _words(text: str) -> str:
    return re.sub(r"\s", "", text)
