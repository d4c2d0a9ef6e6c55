"""The project file counts after command line and environment, and an invalid entry is named with its line."""

import os
from pathlib import Path

import pytest
import typer.main

from runtime.cli.application import application
from runtime.cli.project import schema

APP = ["--app", "samples.shooting_range:app"]
FILE = """\
store = "sqlite:///raffle.db"
table = "raffle"

[truncate]
older-than = "30d"
allow-undated = true

[spark]
settings = { "spark.driver.memory" = "1g", "spark.ui.enabled" = true }

[publish.winners]
to = "sqlite:///published.db"
map = { Won = "winners" }

[env.prod]
table = "production"

[env.prod.truncate]
allow-undated = false
"""


@pytest.fixture
def project(tmp_path: Path, consistent):
    """Write a project file. Return a function that shows the values of a command, with their sources."""
    file = tmp_path / "consistent.toml"
    file.write_text(FILE)

    def values(*words: str):
        said = consistent("config", *words, "--json")
        return {each["key"]: (each["value"], each["from"]) for each in said.document["values"]}

    return values


def test_a_value_is_from_the_first_source_that_has_one(project, monkeypatch):
    assert project("truncate")["table"] == ("raffle", "consistent.toml:2")
    assert project("truncate")["truncate.allow-young"] == (False, "default")
    assert project("truncate", "--env", "prod")["table"] == ("production", "consistent.toml:16 [env.prod]")

    monkeypatch.setenv("CONSISTENT_TABLE", "other")
    monkeypatch.setenv("CONSISTENT_ENV", "prod")
    monkeypatch.setenv("CONSISTENT_TRUNCATE_OLDER_THAN", "2w")
    found = project("truncate", "--keep-last", "3")

    assert found["table"] == ("other", "CONSISTENT_TABLE")
    assert found["truncate.older-than"] == ("2w", "CONSISTENT_TRUNCATE_OLDER_THAN")
    assert found["truncate.allow-undated"] == (False, "consistent.toml:19 [env.prod]")
    assert found["truncate.keep-last"] == ("3", "command line")
    assert project("truncate", "--no-allow-undated")["truncate.allow-undated"] == (False, "command line")


def test_the_variable_of_an_invalid_value_is_named(project, consistent, monkeypatch):
    monkeypatch.setenv("CONSISTENT_TRUNCATE_OLDER_THAN", "soon")

    assert "The value is from CONSISTENT_TRUNCATE_OLDER_THAN." in consistent("truncate").err


def test_json_events_do_not_set_the_format_of_the_log(project, consistent, monkeypatch):
    monkeypatch.setenv("CONSISTENT_LOG_FORMAT", "json")

    assert project("run")["log.format"] == (None, "default")
    assert "CONSISTENT_LOG_FORMAT" not in consistent("config", "run").err


def test_a_group_of_commands_has_all_values(project, consistent):
    assert project("letters") == project()
    assert "No such command 'trunc'" in consistent("config", "trunc").err


def test_paths_count_from_the_folder_of_the_file(project, tmp_path, monkeypatch):
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")

    found = project("publish")

    assert found["store"] == (f"sqlite:///{tmp_path}/raffle.db", "../consistent.toml:1")
    assert found["publish.winners.to"][0] == f"sqlite:///{tmp_path}/published.db"


def test_rules_of_the_file_are_for_truncations_only_not_for_policies(consistent, store, tmp_path):
    text = f'store = "{store}"\ntable = "games"\n[truncate]\nolder-than = "30d"\n'
    (tmp_path / "consistent.toml").write_text(text)

    policy = consistent("truncate", "--policy", "set", "--hold", "--json").document

    assert (policy["hold"], policy["older_than_seconds"]) == (True, None)


def test_the_only_target_is_the_default_and_several_must_be_selected(project, consistent, tmp_path):
    assert project("publish")["publish.winners.map"][0] == ["Won=winners"]
    (tmp_path / "consistent.toml").write_text(FILE + '[publish.losers]\nto = "sqlite:///losers.db"\n')

    assert project("publish", "--to", "losers")["publish.losers.map"] == (None, "default")
    assert "the targets winners, losers: select one with --to" in consistent("publish").err
    assert "did you mean winners?" in consistent("publish", "--to", "winner").err
    more = "[publish.slow]\nto = 'sqlite:///x.db'\ntimeout = '5m'\n"
    (tmp_path / "consistent.toml").write_text(more)
    use = "consistent.toml:3: --publish does not support timeout: use `consistent publish --to slow`"
    assert use in consistent("run", "x.jsonl", "--publish", "slow").err


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('tabel = "x"', "consistent.toml:1: there is no key tabel at the top level: did you mean table?"),
        ('master = "x"', "consistent.toml:1: there is no key master at the top level: it belongs in [spark]."),
        ("\ntable = 7", "consistent.toml:2: table is invalid: it must be text."),
        ('[truncate]\nolder_then = "7d"', "consistent.toml:2: there is no key older_then in [truncate]: did you mean"),
        ('[truncate]\nolder-than = "soon"', "consistent.toml:2: older-than is invalid: 'soon' is not a duration"),
        ('[batch]\ncascade = "yes"', "consistent.toml:2: cascade is invalid: it must be true or false."),
        ("[batch]\nmax-rounds = 0", "consistent.toml:2: max-rounds is invalid: "),
        ('[batch]\nlate = "never"', "consistent.toml:2: late is invalid: 'never' is not one of"),
        ("[log]\ntypes = 'Won'", "consistent.toml:2: types is invalid: it must be a list of names."),
        ("truncate = 1", "consistent.toml:1: truncate must be a table, [truncate]."),
        ("[publish.x]\nrate = 1", "consistent.toml:1: the target x has no URL"),
        ("[env.dev]\n[env.dev.spark]\nmastr = 'x'", "consistent.toml:3: there is no key mastr in [spark]: did"),
        ("env = 1", "consistent.toml:1: env must be a table"),
        ("table = 'a-b'", "consistent.toml:1: table is invalid: "),
        ("[spark]\nmaster = 'here'", "consistent.toml:2: master is invalid: 'here' is not a Spark master"),
        ("[spark]\nremote = 'here'", "consistent.toml:2: remote is invalid: 'here' is not a Spark Connect URL"),
        ("a = = 1", "consistent.toml:1: invalid TOML"),
        (b"\xff", "consistent.toml is not UTF-8 text"),
        ('older-than = "1d"\nolder_than = "2d"', "consistent.toml:1: older-than is given twice"),
        ("\nstore = 'foo'", "consistent.toml:2: store is invalid: The form of the store URL is unknown"),
        ("app = 'raffle'", "consistent.toml:1: app is invalid: it must be MODULE:ATTRIBUTE"),
        ("[spark.settings]\nspark.driver.memory = '2g'", "consistent.toml:1: settings is invalid: spark must not be"),
        ("[publish]\nto = 'sqlite:///x.db'", "consistent.toml:2: a target needs a name: use [publish.NAME]"),
    ],
)  # fmt: skip
def test_an_invalid_entry_is_named_with_file_line_and_advice(consistent, tmp_path, text, sentence):
    (tmp_path / "consistent.toml").write_bytes(text if isinstance(text, bytes) else text.encode())

    said = consistent("batches", "--store", "sqlite:///none.db", "--table", "games")

    assert (said.code, said.out) == (2, "")
    assert said.err.startswith(f"Error: {sentence}")
    assert consistent("batches", "--help").code == 0


@pytest.mark.parametrize("is_there", [True, False])
def test_an_unknown_environment_is_refused(consistent, tmp_path, is_there):
    if is_there:
        (tmp_path / "consistent.toml").write_text(FILE)

    said = consistent("batches", "--env", "prd")

    assert said.code == 2
    assert ("did you mean prod?" if is_there else "There is no environment 'prd'") in said.err


def test_a_secret_in_the_file_is_hidden_and_warned_of(project, consistent, tmp_path):
    store, header = "AccountName=a;AccountKey=c2VjcmV0", '{ Authorization = "x", B = "file:b" }'
    text = f'store = "{store}"\n[publish.http]\nto = "env:TARGET"\nheader = {header}\n'
    (tmp_path / "consistent.toml").write_text(text)

    said = consistent("config", "publish", "--json")

    assert "c2VjcmV0" not in said.out + said.err
    assert "Warning: consistent.toml:1: store contains a secret" in said.err
    assert "Warning: consistent.toml:4: header" in said.err
    found = {each["key"]: each["value"] for each in said.document["values"]}
    assert (found["store"], found["publish.http.to"]) == ("...", "env:TARGET")
    assert found["publish.http.header"] == ["Authorization=...", "B=file:b"]


def test_spark_settings_are_refused_for_a_running_server(project, consistent, tmp_path):
    assert project("truncate")["spark.settings"][0] == ["spark.driver.memory=1g", "spark.ui.enabled=true"]

    said = consistent("truncate", "--remote", "sc://localhost:1", "--dry-run")

    assert said.code == 2
    assert "--settings cannot be applied to the running server sc://localhost:1" in said.err


def test_a_file_of_another_user_above_is_not_used(project, consistent, tmp_path, monkeypatch):
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    monkeypatch.setattr(os, "getuid", lambda: 4711)
    real = Path.stat

    def of_another(path: Path, **more: bool):
        found = real(path, **more)
        return os.stat_result((*found[:4], 4712 if path.name == "consistent.toml" else 4711, *found[5:]))

    monkeypatch.setattr(Path, "stat", of_another)

    assert "belongs to another user" in consistent("batches").err


def test_all_keys_have_one_type():
    known: dict[tuple[str, str], object] = {}
    for key, (declared, _) in schema(typer.main.get_command(application)):
        assert known.setdefault(key, declared.kind) == declared.kind, key
    assert {group for group, _ in known} == {
        "", "batch", "log", "publish", "serve", "spark", "stores", "truncate"
    }  # fmt: skip


def test_a_log_is_named_without_an_option(project, consistent):
    assert project("run", "a.jsonl")["log.messages"] == ("a.jsonl", "command line")
    assert "unexpected extra argument (b)" in consistent("run", "a", "b").err
    assert "no-such-log" in consistent("run", "no-such-log", *APP, "--out", "x").err


def test_unfinished_replaces_the_log_of_the_file(consistent, store, tmp_path):
    text = f'store = "{store}"\ntable = "games"\napp = "{APP[1]}"\n[log]\nmessages = "log.jsonl"\n'
    (tmp_path / "consistent.toml").write_text(text)

    said = consistent("run", "--unfinished", "1h", "--out", "out")

    assert "state-based" in said.err


@pytest.mark.parametrize("text", ["[[tool.consistent]]\ntable = 'games'", "[tool]\nconsistent = 3"])
def test_another_value_than_a_table_in_pyproject_is_refused(consistent, tmp_path, text):
    (tmp_path / "pyproject.toml").write_text(text)

    said = consistent("batches")

    assert said.code == 2
    assert "consistent must be a table, [tool.consistent]" in said.err


@pytest.mark.parametrize(
    "text",
    [
        '[ tool.consistent ]\ntable = "of the file"',
        '[tool]\nconsistent = { table = "of the file" }',
        '[tool."consistent"]\ntable = "of the file"',
        '\ufefftool.consistent.table = "of the file"',
    ],
)
def test_the_table_of_pyproject_is_found_however_it_is_written(consistent, tmp_path, text):
    (tmp_path / "pyproject.toml").write_text(
        "# [tool.consistent] of another file\n[project]\n[tool.consistently]\n"
    )
    assert consistent("config", "batches", "--json").code == 0
    (tmp_path / "pyproject.toml").write_text(text.replace("of the file", "games"))

    found = consistent("config", "batches", "--json").document["values"]

    assert ("table", "games") in {(each["key"], each["value"]) for each in found}


def test_a_project_file_that_is_no_file_is_refused(consistent, tmp_path):
    (tmp_path / "consistent.toml").symlink_to("nowhere")

    assert "is not a file" in consistent("batches").err


@pytest.mark.parametrize(
    "secret",
    [
        "spark.hadoop.fs.s3a.secret.key=hidden",
        "fs.azure.account.key.acct.dfs.core.windows.net=hidden",
        "spark.authenticate.secret=hidden",
        "spark.my.token=hidden",
    ],
)
def test_secret_settings_and_tokens_of_spark_are_not_shown(consistent, secret, monkeypatch):
    assert "hidden" not in consistent("config", "run", "--settings", secret, "--json").out

    monkeypatch.setenv("CONSISTENT_SPARK_REMOTE", "sc://h:15002/;token=hidden")
    assert "hidden" not in consistent("config", "run", "--json").out


@pytest.mark.parametrize("words", ["truncate --older-than 5", "truncate --keep-last 0", "truncate extra"])
def test_config_refuses_what_the_command_refuses(project, consistent, words):
    assert consistent("config", *words.split()).code == 2


def test_config_shows_the_values_that_the_command_uses(project):
    assert project("publish", "--to", "winners")["publish.winners.to"][0].endswith("published.db")
    assert "truncate.older-than" not in project("truncate", "--policy", "set")
