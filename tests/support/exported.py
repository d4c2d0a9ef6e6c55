"""Versions that a truncation exported."""

from pathlib import Path

from runtime.archives.versions import ExportedVersions
from runtime.versions.run import Version


def exported(folder: Path, handler: str, business_id: str) -> list[Version]:
    """Return the distinct versions of a stream, the oldest first. Files of killed workers repeat some."""
    found = ExportedVersions(folder)._versions(handler, business_id)
    by_number = {version.number: version for version in found}
    return [by_number[number] for number in sorted(by_number)]
