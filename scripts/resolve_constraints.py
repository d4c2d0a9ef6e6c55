"""Write constraints.txt anew: one exact version for every package that any extra of this project can bring.

It is run with the oldest supported Python (`make constraints`), because what still installs there also installs on
newer ones, and it installs nothing: pip only resolves.

Then `requirements` gets the hashes of all files of these versions, for each Python and each platform: what `make setup`
and `make setup-test` install. They are asked of the index by uv, as pip tells the hash of the one file alone that it
would install here. `--hashes` writes these files only.
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
HASHED = """\
# What `make setup` and `make setup-test` install, with the hashes of all files of these versions: pip refuses others.
# Written by `make constraints`, for Python 3.11 and newer, on all platforms. Do not edit by hand.
"""
REQUIREMENTS: dict[str, tuple[list[str], list[str]]] = {
    "build": (["-"], []),
    "run": (["setup.cfg"], ["azure", "spark"]),
    "test": (["setup.cfg"], ["test", "lint"]),
}
"""The files of requirements: where the packages are named, and for which extras."""


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


def write_hashes() -> None:
    """Write the requirements with their hashes. Exits when uv is not installed."""
    common = [
        "--constraints",
        "constraints.txt",
        "--generate-hashes",
        "--universal",
        "--python-version",
        "3.11",
    ]
    for name, (sources, extras) in REQUIREMENTS.items():
        chosen = [option for extra in extras for option in ("--extra", extra)]
        command = [sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--no-annotate", "--no-header"]
        compiled = subprocess.run(
            [*command, *sources, *chosen, *common],
            cwd=ROOT,
            input="\n".join(BUILD_TOOLS),
            capture_output=True,
            text=True,
            check=False,
        )
        if compiled.returncode:
            sys.exit(compiled.stderr)
        (ROOT / "requirements" / f"{name}.txt").write_text(HASHED + compiled.stdout)
        print(f"requirements/{name}.txt: {compiled.stdout.count('==')} packages")


def missing_pins() -> list[str]:
    """Return the pins of requirements that constraints.txt lacks: of packages that other versions of Python need."""
    pin = re.compile(r"([a-z0-9-]+)==[^\\]+")
    known = {
        found[1] for found in map(pin.match, (ROOT / "constraints.txt").read_text().splitlines()) if found
    }
    files = [(ROOT / "requirements" / f"{name}.txt").read_text() for name in REQUIREMENTS]
    found = [match for text in files for match in map(pin.match, text.splitlines()) if match]
    return sorted({f"{match[0].rstrip()}\n" for match in found if match[1] not in known})


def main() -> None:
    """Resolve, and replace constraints.txt and the requirements."""
    if sys.version_info[:2] != OLDEST_PYTHON:
        sys.exit(
            "constraints.txt is resolved on Python 3.11: make distclean, then make PYTHON=python3.11 constraints"
        )
    if sys.argv[1:] == ["--hashes"]:
        write_hashes()
        return
    pins = [f"{name}=={version}\n" for name, version in resolve() if name != "consistent-messaging"]
    (ROOT / "constraints.txt").write_text(HEADER + "".join(pins))
    write_hashes()
    pins = sorted([*pins, *missing_pins()], key=lambda pin: pin.partition("==")[0])
    (ROOT / "constraints.txt").write_text(HEADER + "".join(pins))
    print(f"constraints.txt: {len(pins)} packages")


if __name__ == "__main__":
    main()
