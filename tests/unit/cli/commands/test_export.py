"""`consistent export` and `consistent import` copy a table, or refuse in one sentence."""

import json

import pytest

from tests.unit.cli.stores import ON_STORE, TABLE, on_store, play

TO_OTHER = ["--store", "sqlite:///other.db", "--table", "moved"]


def test_a_copied_table_has_the_same_streams_and_recognises_redeliveries(consistent, store, tmp_path):
    said = consistent("export", *ON_STORE, "--to", "export")
    assert said.code == 0
    assert " rows of games to export, in 1 file of " in said.out

    document = consistent("import", "--from", "export", *TO_OTHER, "--json").document

    manifest = json.loads((tmp_path / "export" / "manifest.json").read_text())
    assert document == {
        "folder": "export",
        "bytes": manifest["files"][0]["bytes"],
        **{name: manifest[name] for name in ("table", "rows", "digest", "files")},
    }
    for command in (["show"], ["show", "LeaderBoard", "7d444840-9dc0-11d1-b245-5ffdce74fad2"]):
        before, after = (consistent(*command, *place, "--json") for place in (ON_STORE, TO_OTHER))
        assert after.document == before.document

    on_store(f"sqlite:///{tmp_path}/other.db", play, "moved")
    after = consistent("export", *TO_OTHER, "--to", "after", "--json").document
    assert after["digest"] == document["digest"]


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["export", "--store", "sqlite:///no.db", "--table", TABLE, "--to", "x"], 1, "There is no store at"),
        (["export", "--store", "sqlite:///store.db", "--table", "others", "--to", "x"], 1, "There is no table others"),
        (["export", *ON_STORE, "--to", "full"], 2, "full is not empty"),
        (["export", *ON_STORE, "--to", "full/notes.txt"], 2, "is a file"),
        (["export", *ON_STORE], 2, "--to"),
        (["import", "--from", "no", *TO_OTHER], 1, "There is no complete export in no"),
        (["import", "--from", "full", *TO_OTHER], 1, "There is no complete export in full"),
        (["import", "--from", "export", *ON_STORE], 1, "The table games is not empty"),
        (["import", "--from", "export", "--store", "ftp://no", "--table", TABLE], 2, "store URL"),
        (["import", "--from", "export", "--store", "sqlite:///other.db", "--table", "x"], 2, "table name"),
    ],
)  # fmt: skip
def test_an_impossible_copy_is_refused_in_one_sentence(
    consistent, store, tmp_path, arguments, code, sentence
):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").write_text("mine")
    consistent("export", *ON_STORE, "--to", "export")

    said = consistent(*arguments)

    assert (said.code, said.out) == (code, "")
    assert sentence in said.err
    assert "Traceback" not in said.err
    assert not (tmp_path / "other.db").exists()
