"""The folder of outcomes: a path, or a url that pyarrow or fsspec knows."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from runtime.errors import UsageError
from runtime.file_systems import open_folder
from runtime.spark.commit import absolute_folder


@pytest.mark.parametrize("form", ["{}", "file:{}", "file://{}"])
@pytest.mark.parametrize("name", ["out", "with space", "100%25", "a:b", "änd"])
def test_a_path_is_taken_as_it_stands(tmp_path, form, name):
    folder = open_folder(absolute_folder(form.format(tmp_path / name)))
    folder.create()
    folder.touch("file")

    assert Path(tmp_path, name, "file").is_file()
    assert folder.is_local
    assert folder.moves_whole


def test_a_relative_path_begins_in_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert absolute_folder("out/") == str(tmp_path / "out")


@pytest.mark.parametrize(
    ("url", "asked"),
    [
        ("s3a://bucket/out", "s3://bucket/out"),
        ("abfss://box@account.dfs.core.windows.net/my out", "abfss://box@account.dfs.core.windows.net/my%20out"),
    ],
)  # fmt: skip
def test_a_url_is_opened_by_pyarrow(monkeypatch, url, asked):
    known = {asked: (SimpleNamespace(type_name="s3"), "box/out")}
    monkeypatch.setattr("pyarrow.fs.FileSystem", SimpleNamespace(from_uri=known.get))

    folder = open_folder(url)

    assert folder.path == "box/out"
    assert not folder.is_local
    assert not folder.moves_whole


def test_what_pyarrow_does_not_know_is_asked_of_fsspec(monkeypatch):
    def url_to_fs(url: str):
        return SimpleNamespace(protocol="box"), url.removeprefix("box://")

    monkeypatch.setitem(sys.modules, "fsspec", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "fsspec.core", SimpleNamespace(url_to_fs=url_to_fs))

    folder = open_folder("box://shelf/out")

    assert (folder.path, folder.files.type_name) == ("shelf/out", "py::fsspec+box")
    assert not folder.moves_whole


def test_what_neither_knows_is_refused_before_the_batch_begins(monkeypatch):
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(UsageError, match=r"box://shelf/out cannot be opened: .* or install fsspec"):
        absolute_folder("box://shelf/out")


def test_a_folder_that_is_not_there_is_empty(tmp_path):
    folder = open_folder(str(tmp_path / "out"))
    assert (folder.names(), folder.sizes(), folder.exists()) == ([], {}, False)
    folder.delete()
    folder.delete_file("file")


def test_only_an_empty_folder_is_deleted_as_one(tmp_path):
    folder = open_folder(str(tmp_path / "out"))
    folder.create()
    folder.touch("file")

    folder.delete_if_empty()
    assert folder.names() == ["file"]

    folder.delete_file("file")
    folder.delete_if_empty()
    assert not folder.exists()
