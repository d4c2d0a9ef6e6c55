"""An app of the working directory reaches workers that run in processes and folders of their own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.integration.cli.folder import Folder

CLUSTER = "local-cluster[1,1,1024]"
LARGER_CLUSTER = "local-cluster[2,1,1024]"


@pytest.mark.parametrize(
    ("cluster", "table"),
    [(CLUSTER, "bank"), pytest.param(LARGER_CLUSTER, "bank2", marks=pytest.mark.thorough)],
)
def test_the_app_is_found_by_the_workers_of_a_cluster(
    tmp_path: Path, azurite_url: str, cluster: str, table: str
):
    # Given an app that is a module of the working directory, and a store on the network
    folder = Folder.make(tmp_path)

    # When a batch runs on a cluster
    done = folder.consistent(
        *("run", "--app", "bank:app", "--messages", "log.jsonl", "--store", azurite_url, "--table", table),
        *("--out", "out", "--master", cluster, "--json"),
    )

    # Then its handler ran: nine deposits
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["outcomes"]
    assert sum(row["count"] for row in rows if row["status"] == "processed") == 9


@pytest.mark.thorough
def test_a_file_of_the_driver_is_refused_as_their_store(tmp_path: Path):
    folder = Folder.make(tmp_path)
    done = folder.consistent(
        *("run", "--app", "bank:app", "--messages", "log.jsonl", "--store", "sqlite:///store.db"),
        *("--table", "bank", "--out", "out", "--master", CLUSTER),
    )
    assert done.returncode == 2
    assert "SQLite" in done.stderr
    assert "Traceback" not in done.stderr
