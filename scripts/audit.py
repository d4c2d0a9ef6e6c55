"""Ask the advisories of PyPI about the packages that are installed by `make setup-test`, in their exact versions.

pip-audit asks; it has an environment of its own, .make/audit, as it brings packages that nothing here needs. Exit code
0 when nothing is known against any package, 1 when something is, 2 when the advisories cannot be reached.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENT = ROOT / ".make" / "audit"
REQUIREMENTS = ROOT / "requirements" / "test.txt"
AUDITOR = "pip-audit>=2.7,<3"
UNREACHABLE = (
    "The advisories cannot be reached from here, so nothing is known about {count} of {total} packages: run "
    "`make audit` where https://pypi.org can be reached, not only a mirror of its files."
)
NOT_INSTALLED = "pip-audit cannot be installed into .make/audit: {reason}"


def audit() -> list[dict[str, Any]]:
    """Return what the advisories say of each package. Exits when that cannot be asked."""
    python = ENVIRONMENT / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(ENVIRONMENT)], check=True)
    install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", AUDITOR]
    installed = subprocess.run(install, check=False, capture_output=True, text=True)
    if installed.returncode:
        sys.exit(NOT_INSTALLED.format(reason=last_line(installed.stderr)))
    options = ["--requirement", str(REQUIREMENTS), "--require-hashes", "--disable-pip", "--format", "json"]
    asked = subprocess.run(
        [str(python), "-m", "pip_audit", "--progress-spinner", "off", *options],
        check=False,
        capture_output=True,
        text=True,
    )
    try:
        found: list[dict[str, Any]] = json.loads(asked.stdout)["dependencies"]
    except ValueError:
        print(last_line(asked.stderr))
        return [{"name": "", "skip_reason": "no answer"}]
    return found


def report(dependencies: list[dict[str, Any]]) -> int:
    """Print what is known against packages, and what could not be asked; return the exit code."""
    known = [(each, advisory) for each in dependencies for advisory in each.get("vulns", ())]
    for package, advisory in known:
        fixed = ", ".join(advisory["fix_versions"]) or "no version yet"
        print(f"{package['name']} {package['version']}: {advisory['id']}, mended in {fixed}")
    skipped = sum("skip_reason" in each for each in dependencies)
    if skipped:
        print(UNREACHABLE.format(count=skipped, total=len(dependencies)))
    elif not known:
        print(f"Nothing is known against any of {len(dependencies)} packages.")
    return 1 if known else 2 if skipped else 0


def last_line(text: str) -> str:
    """Return the last line of what a program has said."""
    return (text.strip().splitlines() or ["it said nothing"])[-1]


if __name__ == "__main__":
    sys.exit(report(audit()))
