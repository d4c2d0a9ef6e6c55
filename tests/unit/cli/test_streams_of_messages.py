"""`consistent stream` refuses what cannot be run before it starts Spark."""

import pytest

GIVEN = {
    "--app": "samples.shooting_range:app", "--source": "incoming", "--format": "json", "--store": "sqlite:///store.db",
    "--table": "games", "--out": "out", "--query": "shots", "--checkpoint": "checkpoint",
}  # fmt: skip


@pytest.mark.parametrize(
    ("option", "value", "sentence"),
    [
        ("--source", "nowhere", "There is no folder nowhere: --source names the one that files come into."),
        ("--source", "incoming*", "a pattern to Spark"),
        ("--out", "incoming/out", "--out incoming/out is in the folder of --source, incoming"),
        ("--checkpoint", "incoming/c", "choose another --checkpoint"),
        ("--checkpoint", "file/c", "The checkpoint cannot be written to file/c: "),
        ("--trigger", "5s", "leave it or --available-now out"),
        ("--trigger", "soon", "'soon' is no duration"),
        ("--query", "a b", "is not usable"),
        ("--out", "out[1]", "a pattern to Spark"),
        ("--compact-after", "0", "'--compact-after'"),
        ("--max-dead-letters", "many", "'many'"),
        ("--types", "Fire", "FireAt, Hit"),
        ("--publish", "ftp://x", "A target is sqlite:///FILE"),
        ("--map", "Hit=hits", "--map says how outputs are published: add --publish URL."),
    ],
)
def test_it_says_what_to_change(consistent, tmp_path, monkeypatch, option, value, sentence):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "incoming").mkdir()
    (tmp_path / "file").touch()
    words = [word for pair in {**GIVEN, option: value}.items() for word in pair]

    said = consistent("stream", *words, "--available-now")

    assert said.code in (1, 2)
    assert sentence in said.err
    assert "Starting Spark" not in said.err
