"""Which files of a folder name a business object: outcomes of batches, exports of tables and of versions."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds

from runtime.archives.files import reading
from runtime.archives.letters import LETTER_PARTS


def files_that_name(folder: Path, handler: str, business_ids: Collection[str]) -> Mapping[Path, int]:
    """Return the files with rows of one of these objects, with how many. Raises `ArchiveError`.

    A row of a Parquet file names an object by its columns `handler` and `business_id`, or by its `partition_key`, and
    an exported letter by its stream; what stands in bodies and states is not looked at.
    """
    keys = [f"{handler}-{business_id}" for business_id in business_ids]
    found = {}
    for path in sorted(filter(Path.is_file, folder.rglob("*.parquet"))):
        with reading(path):
            file = ds.dataset(path, format="parquet")
            names = set(file.schema.names)
            if names >= {"handler", "business_id"}:
                of_handler = ds.field("handler") == handler
                rows = file.count_rows(filter=of_handler & ds.field("business_id").isin(list(business_ids)))
            elif "partition_key" in names:
                rows = file.count_rows(filter=ds.field("partition_key").isin(keys))
            else:
                rows = 0
        if rows:
            found[path] = rows
    for path in sorted(folder.rglob(LETTER_PARTS)):
        with reading(path), path.open(encoding="utf-8") as lines:
            rows = sum(_is_of(json.loads(line), handler, business_ids) for line in lines)
        if rows:
            found[path] = rows
    return found


def _is_of(letter: Mapping[str, Any], handler: str, business_ids: Collection[str]) -> bool:
    return letter["handler"] == handler and letter["stream"] in business_ids
