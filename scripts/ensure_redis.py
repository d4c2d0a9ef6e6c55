"""Put a redis-server at .make/redis/redis-server, for the tests of delivery keys.

One on PATH is linked there. Otherwise Debian's and Ubuntu's packages are downloaded and unpacked into .make/redis,
which needs no administrator, installs nothing and starts nothing: the server finds its libraries beside it.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PLACE = ROOT / ".make" / "redis"
SERVER = PLACE / "redis-server"
PACKAGES = ("redis-server", "redis-tools", "libjemalloc2", "liblzf1")
"""The server is in redis-tools; the libraries are those that a small system lacks."""
MISSING = (
    "redis-server is not installed, and its packages cannot be downloaded with apt-get: install Redis 6.2 or newer "
    "(apt-get install redis-server, brew install redis), then run this again."
)
LAUNCHER = """#!/bin/sh
here=$(dirname "$(readlink -f "$0")")
LD_LIBRARY_PATH=$here/{libraries}${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}} exec "$here/usr/bin/redis-server" "$@"
"""


def unpack() -> None:
    """Download the packages, unpack them, and write what starts the server. Exits when that is not possible."""
    print("Unpacking redis-server into .make/redis ...", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        try:
            download(folder)
            for package in Path(folder).glob("*.deb"):
                run(["dpkg", "-x", str(package), str(PLACE)], folder)
        except (FileNotFoundError, subprocess.CalledProcessError) as error:
            said = getattr(error, "stdout", None) or error
            sys.exit(f"{said}\n{MISSING}")
    (libraries,) = (PLACE / "usr" / "lib").glob("*-linux-*")
    SERVER.write_text(LAUNCHER.format(libraries=libraries.relative_to(PLACE)))
    SERVER.chmod(0o755)


def download(folder: str) -> None:
    """Download the packages. A system that has never looked for any does so first, which takes an administrator."""
    try:
        run(["apt-get", "download", *PACKAGES], folder)
    except subprocess.CalledProcessError:
        run(["apt-get", "update"], folder)
        run(["apt-get", "download", *PACKAGES], folder)


def run(command: list[str], folder: str) -> None:
    """Run a command quietly in a folder. Raises `CalledProcessError` with what it said."""
    subprocess.run(
        command, check=True, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def main() -> None:
    """Make the server, and see that it starts."""
    shutil.rmtree(PLACE, ignore_errors=True)
    PLACE.mkdir(parents=True)
    installed = shutil.which("redis-server")
    if installed:
        SERVER.symlink_to(installed)
    else:
        unpack()
    try:
        run([str(SERVER), "--version"], str(ROOT))
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"{getattr(error, 'stdout', None) or error}\n{MISSING}")


if __name__ == "__main__":
    main()
