"""Write the reference, docs/reference/, anew from the code: `make reference`."""

from __future__ import annotations

from scripts.reference import commands_page, handlers_page, outcomes_page, settings_page
from scripts.reference.source import ROOT

FOLDER = ROOT / "docs" / "reference"
PAGES = {
    "commands.md": commands_page.write,
    "handlers.md": handlers_page.write,
    "outcomes.md": outcomes_page.write,
    "settings.md": settings_page.write,
}
"""The pages that are kept. That on the Python API is long, and is made with the site (`scripts/site_pages.py`)."""


def main() -> None:
    """Write the pages."""
    for name, write in PAGES.items():
        (FOLDER / name).write_text(write())


if __name__ == "__main__":
    main()
