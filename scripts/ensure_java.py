"""Make sure that there is a Java that Spark runs on: find it, or install it where that can be done unasked.

Usage: ensure_java.py [OS_RELEASE], the file that names the system, /etc/os-release unless given.

It imports nothing that has to be installed. The search itself is runtime/spark/java.py, which Spark sessions
use too.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType

SEARCH = Path(__file__).resolve().parent.parent / "runtime" / "spark" / "java.py"
PACKAGES = ("openjdk-17-jre-headless", "openjdk-21-jre-headless")


def load_search() -> ModuleType:
    """Load runtime/spark/java.py by its path, without the package around it."""
    spec = importlib.util.spec_from_file_location("java", SEARCH)
    if spec is None or spec.loader is None:
        raise FileNotFoundError(SEARCH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def can_install(os_release: Path) -> bool:
    """Tell whether this is a Debian or Ubuntu on which we may install packages."""
    system = os_release.read_text() if os_release.exists() else ""
    is_debian = re.search(r"^ID(_LIKE)?=.*\b(debian|ubuntu)\b", system, re.MULTILINE) is not None
    return is_debian and os.geteuid() == 0 and shutil.which("apt-get") is not None


def install_with_apt() -> str:
    """Install the first of the packages that there is, and return what apt-get said last if there is none."""
    said = apt_get("update", "-q")
    for package in PACKAGES:
        print(f"Installing {package} with apt-get ...", flush=True)
        said = apt_get("install", "-y", "--no-install-recommends", package)
        if not said:
            break
    return said


def apt_get(*arguments: str) -> str:
    """Run apt-get, and return the last line that it said if it failed, else nothing."""
    environ = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(
        ["apt-get", *arguments],
        check=False,
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return done.stdout.strip().rpartition("\n")[2] or "apt-get failed" if done.returncode else ""


def main() -> None:
    """Find or install Java; exit with one sentence if there is none in the end."""
    java = load_search()
    if java.find_java():
        return
    if can_install(Path(sys.argv[1] if len(sys.argv) > 1 else "/etc/os-release")):
        said = install_with_apt()
        if java.find_java():
            return
        print(said, file=sys.stderr)
    sys.exit(java.JAVA_MISSING)


if __name__ == "__main__":
    main()
