"""Exit code 2 for what was asked for wrongly, 1 for what turned out to be impossible, and one sentence for each."""

import pytest

ON_STORE = ["--store", "sqlite:///store.db", "--table", "games"]
RUN = ["run", *ON_STORE, "--out", "out"]
VERIFY = ["verify", *ON_STORE, "--messages", "log.parquet"]
SAMPLE = ["--app", "samples.shooting_range:app"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nothing"], "No such command"),
        (["streams"], "--store"),
        (["streams", "--store", "sqlite:///store.db"], "--table"),
        (["streams", "--store", "nowhere", "--table", "games"], "forms that are known"),
        (["streams", "--store", "sqlite:///store.db", "--table", "no table"], "table name"),
        (["streams", "--store", "env:NOT_SET_ANYWHERE", "--table", "games"], "NOT_SET_ANYWHERE"),
        (["streams", *ON_STORE, "--limit", "-1"], "--limit"),
        (["show", *ON_STORE, "ShootingRange", "1", "--version", "1", "--message", "m"], "not both"),
        (["truncate", *ON_STORE], "--older-than AGE, --keep-last N"),
        (["truncate", *ON_STORE, "--older-than", "soon"], "30s, 15m, 24h, 7d or 2w"),
        (["truncate", *ON_STORE, "--older-than", "3h"], "--allow-young"),
        (["truncate", *ON_STORE, "--keep-last", "0"], "--keep-last"),
        (["run", *ON_STORE, *SAMPLE, "--messages", "log.parquet"], "--out"),
        ([*RUN, "--app", "samples.shooting_range", "--messages", "log.parquet"], "MODULE:ATTRIBUTE"),
        ([*RUN, *SAMPLE, "--messages", "log.parquet", "--late", "perhaps"], "--late"),
        ([*RUN, *SAMPLE, "--messages", "log.parquet", "--on-difference", "perhaps"], "--on-difference"),
        (["verify", *ON_STORE, *SAMPLE], "--messages"),
        ([*VERIFY, "--app", "samples.shooting_range"], "MODULE:ATTRIBUTE"),
        ([*RUN, "--app", "nowhere:app", "--messages", "log.parquet"], "There is no module nowhere"),
        (["lint", "nowhere:app"], "There is no module nowhere"),
        (["lint", "runtime.clock"], "There is no handler in runtime.clock"),
        ([*VERIFY, *SAMPLE, "--sample", "0"], "above 0 and up to 1"),
        ([*VERIFY, *SAMPLE, "--sample", "many"], "--sample"),
        ([*VERIFY, *SAMPLE, "--master", "spark://host:7077"], "SQLite"),
        ([*RUN, *SAMPLE, "--messages", "log.parquet", "--master", "spark://host:7077"], "SQLite"),
        (
            ["run", "--store", "memory:", "--table", "games", *SAMPLE, "--messages", "x", "--out", "out"],
            "one process",
        ),
    ],
)
def test_what_was_asked_for_wrongly(consistent, store, arguments, sentence):
    said = consistent(*arguments)

    assert said.code == 2
    assert sentence in said.err
    assert "Traceback" not in said.err
    assert said.out == ""


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["streams", "--store", "sqlite:///other.db", "--table", "games"], "There is no store at"),
        (
            ["truncate", "--store", "sqlite:///other.db", "--table", "games", "--older-than", "7d"],
            "There is no store",
        ),
        (["show", *ON_STORE, "ShootingRange", "1"], "There is no stream of ShootingRange for 1"),
        (["batches", *ON_STORE, "--abandon", "b7"], "There is no batch b7"),
        ([*RUN, *SAMPLE, "--messages", "log.parquet"], "There is no log at log.parquet"),
        ([*VERIFY, *SAMPLE], "There is no log at log.parquet"),
        (
            ["verify", *ON_STORE, *SAMPLE, "--messages", "a.jsonl", "--store", "sqlite:///other.db"],
            "There is no store at",
        ),
        (
            ["verify", *ON_STORE, *SAMPLE, "--messages", "a.jsonl", "--table", "others"],
            "There is no table others in sqlite:",
        ),
        (["sample", "shooting-range", "--out", "store.db"], "is there already"),
    ],
)
def test_what_turned_out_to_be_impossible(consistent, store, tmp_path, arguments, sentence):
    (tmp_path / "a.jsonl").write_text("{}\n")

    said = consistent(*arguments)

    assert said.code == 1
    assert said.err.startswith("Error: ")
    assert sentence in said.err
    assert said.err.count("\n") == 1
    assert said.out == ""


def test_a_store_that_is_not_there_is_not_made(consistent, tmp_path):
    consistent("streams", "--store", "sqlite:///other.db", "--table", "games")
    consistent(
        "verify", "--store", "sqlite:///other.db", "--table", "games", *SAMPLE, "--messages", str(tmp_path)
    )

    assert list(tmp_path.iterdir()) == []


def test_store_and_table_may_come_from_the_environment(consistent, store, monkeypatch):
    monkeypatch.setenv("CONSISTENT_STORE", store)
    monkeypatch.setenv("CONSISTENT_TABLE", "games")

    assert consistent("streams").code == 0


def test_an_option_is_preferred_to_the_environment(consistent, store, monkeypatch):
    monkeypatch.setenv("CONSISTENT_STORE", "nowhere")

    assert consistent("streams", "--store", store, "--table", "games").code == 0


def test_a_secret_in_a_store_url_is_never_printed(consistent):
    secret = "c2VjcmV0LXNlY3JldA"
    for url in (
        f"AccountName=a;AccountKey={secret}",
        f"https://a.table.core.windows.net/?sig{secret}",
        f"x:{secret}",
    ):
        said = consistent("streams", "--store", url, "--table", "no table")

        assert said.code == 2
        assert secret not in said.err + said.out
