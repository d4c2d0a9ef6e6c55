"""Compare the golden files with what the code does today, or write them anew.

| command | what it does |
|---|---|
| `python -m tests.golden` | shows which differ, and how |
| `python -m tests.golden --write` | writes them; review the difference before it is committed |
| `python -m tests.golden --write forgotten` | writes one |
"""

import argparse
import sys
import tempfile
from pathlib import Path

from tests.golden.files import ALL, difference, write


def main() -> None:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(prog="python -m tests.golden", description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(ALL)}")
    parser.add_argument("--write", action="store_true", help="write the files anew")
    arguments = parser.parse_args()
    differ = False
    for name in arguments.names or ALL:
        with tempfile.TemporaryDirectory() as folder:
            found = ALL[name](Path(folder))
        if arguments.write:
            write(name, found)
        elif lines := difference(name, found):
            differ = True
            print(lines)
    sys.exit(differ)


if __name__ == "__main__":
    main()
