"""An app of the working directory reaches workers in other processes and folders."""

import json
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet
from pyarrow.dataset import dataset

from samples.shooting_range.log import generate
from tests.integration.cli.folder import Folder

FOUR_WORKERS = "local-cluster[4,1,1024]"

# Message id, status and version of an outcome, with ids and bodies of its outputs.
Ended = tuple[str, str, int, tuple[tuple[str, str], ...]]


@pytest.mark.thorough
@pytest.mark.parametrize(("workers", "table"), [(1, "bank"), (2, "bank2")])
def test_the_workers_of_a_cluster_find_the_app(tmp_path: Path, azurite_url: str, workers: int, table: str):
    folder = Folder.make(tmp_path)

    done = folder.consistent(
        *("run", "--app", "bank:app", "--messages", "log.jsonl", "--store", azurite_url, "--table", table),
        *("--out", "out", "--master", f"local-cluster[{workers},1,1024]", "--json"),
    )

    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["outcomes"]
    assert sum(row["count"] for row in rows if row["status"] == "processed") == 9


@pytest.mark.thorough
def test_four_workers_on_a_network_store_do_what_two_threads_do_on_a_file(tmp_path: Path, azurite_url: str):
    # Given a log in no order, with a duplicate for each tenth message
    folder = Folder(tmp_path)
    rows = list(generate(300, 6000, duplicates=0.1, shuffle=True))
    parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "games.parquet")

    # When it is run by four workers on Azurite, twice, and by two threads on SQLite
    once, again = (
        _outcomes(folder, out, FOUR_WORKERS, store=azurite_url, table="four") for out in ("first", "second")
    )
    alone = _outcomes(folder, "alone", "local[2]", store="sqlite:///store.db", table="games")

    # Then each message took effect once, in the same version, with the same outputs
    assert once == alone
    statuses = Counter(status for _, status, _, _ in once.elements())
    assert statuses == {"processed": 6000, "duplicate": 600}
    assert {status for _, status, _, _ in again} == {"duplicate"}
    made = {(id_, version, outputs) for id_, status, version, outputs in once if status == "processed"}
    assert {(id_, version, outputs) for id_, _, version, outputs in again if outputs} <= made


def _outcomes(folder: Folder, out: str, master: str, *, store: str, table: str) -> Counter[Ended]:
    """Run the log of games, and return how its deliveries ended."""
    done = folder.consistent(
        *("run", "--app", "samples.shooting_range:app", "--messages", "games.parquet", "--store", store),
        *("--table", table, "--out", out, "--batch-id", out, "--master", master),
    )
    assert done.returncode == 0, done.stderr
    ended: Counter[Ended] = Counter()
    for row in dataset(folder.path / out, partitioning="hive").to_table().to_pylist():
        outputs = tuple((output["message_id"], output["body"]) for output in row["outputs"])
        ended[row["message_id"], row["status"], row["version"], outputs] += 1
    return ended
