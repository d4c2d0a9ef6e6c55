"""Programs in processes of their own, which a test talks with line by line.

A program says by printing what it has come to, and waits for its orders by reading. None outlives its test.
"""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]


class Program:
    def __init__(self, source: str, *arguments: object) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", source, *map(str, arguments)],
            cwd=REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdin
        assert self._process.stdout
        assert self._process.stderr
        self._orders, self._answers = self._process.stdin, self._process.stdout
        self._complaints = self._process.stderr

    def line(self) -> str:
        """Wait for the next line that it prints, and return it."""
        line = self._answers.readline()
        assert line.endswith("\n"), f"It ended: {self._complaints.read()}"
        return line[:-1]

    def tell(self, order: str) -> None:
        self._orders.write(f"{order}\n")
        self._orders.flush()

    def end(self) -> list[str]:
        """Wait until it ends by itself and without a complaint; return the lines that it had still to say."""
        self._orders.close()
        lines = self._answers.read().splitlines()
        assert (self._complaints.read(), self._process.wait()) == ("", 0)
        return lines

    def kill(self) -> list[str]:
        """End it, wherever it is; return the lines that it had still to say."""
        if self._process.returncode is None:
            self._process.kill()
            self._process.wait()
        lines = [] if self._answers.closed else self._answers.read().split("\n")
        for file in (self._orders, self._answers, self._complaints):
            file.close()
        return lines[:-1]


@contextmanager
def programs() -> Iterator[Callable[..., Program]]:
    started: list[Program] = []

    def start(source: str, *arguments: object) -> Program:
        started.append(Program(source, *arguments))
        return started[-1]

    try:
        yield start
    finally:
        for program in started:
            program.kill()
