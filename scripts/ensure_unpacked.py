"""Put redis-server and pgbouncer into .make/redis and .make/pgbouncer, for tests of delivery keys and of PostgreSQL.

One on PATH is linked there. Otherwise the packages of Debian and Ubuntu are downloaded and unpacked, which needs no
administrator, installs nothing and starts nothing: a program finds its libraries in its folder.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent


class Program(NamedTuple):
    """A program: its folder in .make, where its package has it, and the packages that a small system lacks."""

    name: str
    folder: str
    file: str
    packages: tuple[str, ...]

    @property
    def place(self) -> Path:
        """The folder."""
        return ROOT / ".make" / self.folder

    @property
    def launcher(self) -> Path:
        """The file that starts the program."""
        return self.place / self.name


PROGRAMS = (
    # The server is in redis-tools.
    Program(
        "redis-server",
        "redis",
        "usr/bin/redis-server",
        ("redis-server", "redis-tools", "libjemalloc2", "liblzf1"),
    ),
    Program("pgbouncer", "pgbouncer", "usr/sbin/pgbouncer", ("pgbouncer", "libevent-2.1-7", "libc-ares2")),
)
MISSING = (
    "{name} is not installed, and its packages cannot be downloaded with apt-get: install it "
    "(apt-get install {name}, brew install {folder}), then run this again."
)
LAUNCHER = """#!/bin/sh
here=$(dirname "$(readlink -f "$0")")
LD_LIBRARY_PATH=$here/{libraries}${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}} exec "$here/{file}" "$@"
"""


def unpack(program: Program) -> None:
    """Download the packages, unpack them, and write what starts the program. Exits when that is not possible."""
    print(f"Unpacking {program.name} into .make/{program.folder} ...", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        try:
            download(program.packages, folder)
            for package in Path(folder).glob("*.deb"):
                run(["dpkg", "-x", str(package), str(program.place)], folder)
        except (FileNotFoundError, subprocess.CalledProcessError) as error:
            give_up(program, error)
    (libraries,) = (program.place / "usr" / "lib").glob("*-linux-*")
    program.launcher.write_text(
        LAUNCHER.format(libraries=libraries.relative_to(program.place), file=program.file)
    )
    program.launcher.chmod(0o755)


def download(packages: tuple[str, ...], folder: str) -> None:
    """Download packages. A system that has never looked for any does so first, which takes an administrator."""
    try:
        run(["apt-get", "download", *packages], folder)
    except subprocess.CalledProcessError:
        run(["apt-get", "update"], folder)
        run(["apt-get", "download", *packages], folder)


def run(command: list[str], folder: str) -> None:
    """Run a command quietly in a folder. Raises `CalledProcessError` with what it said."""
    subprocess.run(
        command, check=True, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def give_up(program: Program, error: Exception) -> None:
    """Exit with what was said, and with what helps."""
    sys.exit(f"{getattr(error, 'stdout', None) or error}\n{MISSING.format(**program._asdict())}")


def main() -> None:
    """Make the programs, and see that they start."""
    for program in PROGRAMS:
        shutil.rmtree(program.place, ignore_errors=True)
        program.place.mkdir(parents=True)
        installed = shutil.which(program.name)
        if installed:
            program.launcher.symlink_to(installed)
        else:
            unpack(program)
        try:
            run([str(program.launcher), "--version"], str(ROOT))
        except (OSError, subprocess.CalledProcessError) as error:
            give_up(program, error)


if __name__ == "__main__":
    main()
