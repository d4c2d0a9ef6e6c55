"""Versions that a truncation exported."""

from pathlib import Path

import pyarrow.dataset as ds

from runtime.archives.versions import PARTS, SCHEMA, _rows_in, _version_of
from runtime.versions.run import Version


def exported(folder: Path, handler: str, business_id: str) -> list[Version]:
    """Return the distinct versions of a stream, the oldest first. Files of killed workers repeat some."""
    of_stream = (ds.field("handler") == handler) & (ds.field("business_id") == business_id)
    files = ds.dataset(list(map(str, folder.glob(PARTS))), schema=SCHEMA)
    rows = [row for batch in files.to_table(filter=of_stream).to_batches() for row in _rows_in(batch)]
    by_number = {version.number: version for version in map(_version_of, rows)}
    return [by_number[number] for number in sorted(by_number)]
