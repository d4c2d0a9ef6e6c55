"""Rounds are put in place on a store that moves neither folders nor files: Azurite's blobs, through pyarrow."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from urllib.parse import unquote

import pytest
from pyarrow.fs import AzureFileSystem

from runtime import file_systems
from tests.support.rounds import Steps, all_steps, overtake, survive_the_driver

ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="  # not secret

_numbers = itertools.count(1)


@pytest.fixture
def container(azurite_blobs: str, monkeypatch: pytest.MonkeyPatch) -> str:
    blobs = AzureFileSystem(
        ACCOUNT, account_key=KEY, blob_storage_authority=azurite_blobs, blob_storage_scheme="http",
        dfs_storage_authority=azurite_blobs, dfs_storage_scheme="http",
    )  # fmt: skip
    known = SimpleNamespace(from_uri=lambda url: (blobs, unquote(url).removeprefix("abfs://")))
    monkeypatch.setattr(file_systems, "FileSystem", known)
    name = f"container-{next(_numbers)}"
    blobs.create_dir(name)
    return f"abfs://{name}/the out folder"


@pytest.mark.thorough
def test_a_driver_that_dies_at_any_step_is_followed_by_one_that_ends_the_work(container, monkeypatch):
    steps = Steps(monkeypatch)
    seen_in_part = [survive_the_driver(number, out, steps) for number, out in all_steps(container, steps)]
    assert any(seen_in_part)


@pytest.mark.thorough
def test_of_two_drivers_one_has_all_in_place_and_what_it_committed_stays(container, monkeypatch):
    steps = Steps(monkeypatch)
    for number, out in itertools.islice(all_steps(container, steps), None, None, 3):
        overtake(number, out, steps)
