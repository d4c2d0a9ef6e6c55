"""Put redis-server, pgbouncer and chromium into folders of .make, for tests of keys, PostgreSQL and the explorer.

One on PATH is linked there. Otherwise the packages of Debian and Ubuntu are downloaded and unpacked, which needs no
administrator, installs nothing and starts nothing: a program finds its libraries in its folder.
"""

from __future__ import annotations

import re
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
    has_many: bool = False  # so many packages that those which are missing here are asked for

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
    Program("chromium", "chromium", "usr/lib/chromium/chromium", ("chromium",), has_many=True),
)
MISSING = (
    "{name} is not installed, and its packages cannot be downloaded with apt-get: install it "
    "(apt-get install {name}, brew install {folder}), then run this again."
)
LAUNCHER = """#!/bin/sh
here=$(dirname "$(readlink -f "$0")")
[ ! -d "$here/etc/fonts" ] || export FONTCONFIG_PATH="$here/etc/fonts" XDG_DATA_HOME="$here/usr/share"
LD_LIBRARY_PATH=$here/{libraries}${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}} exec "$here/{file}" "$@"
"""


def unpack(program: Program) -> None:
    """Download the packages, unpack them, and write what starts the program. Exits when that is not possible."""
    print(f"Unpacking {program.name} into .make/{program.folder} ...", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        try:
            download(program, folder)
            for package in Path(folder).glob("*.deb"):
                run(["dpkg", "-x", str(package), str(program.place)], folder)
        except (FileNotFoundError, subprocess.CalledProcessError) as error:
            give_up(program, error)
    (libraries,) = (program.place / "usr" / "lib").glob("*-linux-*")
    program.launcher.write_text(
        LAUNCHER.format(libraries=libraries.relative_to(program.place), file=program.file)
    )
    program.launcher.chmod(0o755)


def download(program: Program, folder: str) -> None:
    """Download packages. A system that has never looked for any does so first, which takes an administrator."""
    try:
        run(["apt-get", "download", *needed(program)], folder)
    except subprocess.CalledProcessError:
        run(["apt-get", "update"], folder)
        run(["apt-get", "download", *needed(program)], folder)


def needed(program: Program) -> tuple[str, ...]:
    """Return the packages to unpack."""
    if not program.has_many:
        return program.packages
    simulated = ["apt-get", "install", "--simulate", "--no-install-recommends", *program.packages]
    said = subprocess.run(simulated, check=True, capture_output=True, text=True).stdout
    return tuple(re.findall(r"^Inst (\S+)", said, re.MULTILINE))


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
