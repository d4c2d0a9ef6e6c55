"""See that there is a PostgreSQL server for the tests of publishing: that of the package pgserver, or else Debian's.

The package came with those for the tests, where it has a wheel. Nothing is installed or started here.
"""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

MISSING = "There is no PostgreSQL server: install one (apt-get install postgresql), then run this again."


def main() -> None:
    """Print which server it is."""
    package = find_spec("pgserver")
    places = (package.submodule_search_locations or []) if package else []
    programs = [Path(each, "pginstall", "bin", "postgres") for each in places]
    programs += sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), reverse=True)
    found = next((each for each in programs if each.exists()), None)
    if found is None:
        sys.exit(MISSING)
    subprocess.run([found, "--version"], check=True)


if __name__ == "__main__":
    main()
