"""Which files of a folder name a business object: outcomes of batches, exports of tables and of versions."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from runtime.archives.files import reading
from runtime.archives.letters import PARTS


def files_that_name(folder: Path, handler: str, business_ids: Collection[str]) -> Mapping[Path, int]:
    """Return the files with rows of one of these objects, with how many. Raises `ArchiveError`.

    A row of a Parquet file names an object by its columns `handler` and `business_id`, or by its `partition_key`, and
    an exported letter by its stream; what stands in bodies and states is not looked at.
    """
    keys = [f"{handler}-{business_id}" for business_id in business_ids]
    found = {}
    for path in sorted(filter(Path.is_file, folder.rglob("*.parquet"))):
        with reading(path), parquet.ParquetFile(path) as file:
            names = set(file.schema_arrow.names)
            columns = [name for name in ("handler", "business_id", "partition_key") if name in names]
            groups = range(file.num_row_groups) if columns else ()
            batches = (file.read_row_group(group, columns=columns) for group in groups)
            rows = sum(_count(batch, handler, business_ids, keys) for batch in batches)
        if rows:
            found[path] = rows
    for path in sorted(folder.rglob(PARTS)):
        with reading(path), path.open(encoding="utf-8") as lines:
            rows = sum(_is_of(json.loads(line), handler, business_ids) for line in lines)
        if rows:
            found[path] = rows
    return found


def _is_of(letter: Mapping[str, Any], handler: str, business_ids: Collection[str]) -> bool:
    return letter["handler"] == handler and letter["stream"] in business_ids


def _count(batch: pa.RecordBatch, handler: str, business_ids: Collection[str], keys: Collection[str]) -> int:
    names = set(batch.schema.names)
    if names >= {"handler", "business_id"}:
        of_handler = pc.equal(batch["handler"], handler)
        named = pc.and_(of_handler, pc.is_in(batch["business_id"], value_set=pa.array(business_ids)))
    elif "partition_key" in names:
        named = pc.is_in(batch["partition_key"], value_set=pa.array(keys))
    else:
        return 0
    return pc.sum(named).as_py() or 0
