"""Find a Java installation that Spark supports.

Spark's launcher takes JAVA_HOME, or the first `java` on PATH, and fails with an obscure error if its version is
unsupported. Only the standard library is used, because scripts/ensure_java.py loads this file before anything is
installed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

JAVA_MISSING = (
    "Spark needs Java 17 or 21, which was not found: install it"
    " (on Debian or Ubuntu: apt-get install openjdk-17-jre-headless) or set JAVA_HOME to where it is."
)

_USUAL_FOLDERS = ("usr/lib/jvm/*", "Library/Java/JavaVirtualMachines/*/Contents/Home")


def find_java() -> Path | None:
    """Return the first supported Java home (JAVA_HOME, PATH, usual folders), or `None`. Starts each, in about 0.1 s."""
    on_path = shutil.which("java")
    candidates = [Path(os.environ["JAVA_HOME"], "bin", "java")] if os.environ.get("JAVA_HOME") else []
    candidates += [Path(on_path)] if on_path else []
    candidates += [home / "bin" / "java" for name in _USUAL_FOLDERS for home in sorted(Path("/").glob(name))]
    distinct: dict[Path, Path] = {}
    for candidate in candidates:
        distinct.setdefault(candidate.resolve(), candidate)
    for launcher in distinct.values():
        properties = _properties(launcher)
        if is_supported(properties.get("java.version", "")):
            return Path(properties["java.home"])
    return None


def is_supported(version: str) -> bool:
    """Return whether Spark 4 supports a Java version: 17, 21, or 25 from 25.0.3 (with PySpark 4.2)."""
    numbers = tuple(int(number) for number in re.findall(r"\d+", version)[:3])
    return numbers[:1] in {(17,), (21,)} or (25, 0, 3) <= numbers < (26,)


def _properties(launcher: Path) -> dict[str, str]:
    command = [str(launcher), "-XshowSettings:properties", "-version"]
    try:
        said = subprocess.run(  # noqa: S603 - a `java` that the user or the system put there
            command, capture_output=True, text=True, timeout=60, check=True
        ).stderr
    except (OSError, subprocess.SubprocessError):
        return {}
    return dict(re.findall(r"^ *(java\.home|java\.version) = (.+)$", said, re.MULTILINE))
