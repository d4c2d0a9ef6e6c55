"""Write constraints.txt anew: one exact version for every package that any extra of this project can bring.

It is run with the oldest supported Python (`make constraints`), because what still installs there also installs on
newer ones, and it installs nothing: pip only resolves.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OLDEST_PYTHON = (3, 11)
EXTRAS = "bench,docs,identity,lint,node,test,tla"
BUILD_TOOLS = ["setuptools"]
HEADER = """\
# The exact versions that `make setup` and `make setup-test` install; setup.cfg has the ranges that work.
# Written by `make constraints` on Python 3.11, and valid on 3.12 and 3.13 too. Do not edit by hand.
"""


def resolve() -> list[tuple[str, str]]:
    """Return the name and version of every package that pip would install into an empty environment."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        arguments = ["install", "--quiet", "--dry-run", "--ignore-installed", "--report", str(report)]
        subprocess.run(
            [sys.executable, "-m", "pip", *arguments, *BUILD_TOOLS, f"{ROOT}[{EXTRAS}]"], check=True
        )
        installed = json.loads(report.read_text())["install"]
    return sorted((canonical(item["metadata"]["name"]), item["metadata"]["version"]) for item in installed)


def canonical(name: str) -> str:
    """Spell a package's name as package indexes do."""
    return re.sub(r"[-_.]+", "-", name).lower()


def main() -> None:
    """Resolve, and replace constraints.txt."""
    if sys.version_info[:2] != OLDEST_PYTHON:
        sys.exit(
            "constraints.txt is resolved on Python 3.11: make distclean, then make PYTHON=python3.11 constraints"
        )
    pins = [f"{name}=={version}\n" for name, version in resolve() if name != "consistent-messaging"]
    (ROOT / "constraints.txt").write_text(HEADER + "".join(pins))
    print(f"constraints.txt: {len(pins)} packages")


if __name__ == "__main__":
    main()
