"""What the project file says counts where neither command line nor environment does; what cannot be names its line."""

import os
from pathlib import Path

import pytest
import typer.main

from runtime.cli.application import application
from runtime.cli.project import Command, schema

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
    """Write a project file, and give what shows the values that a command takes, with their places."""
    file = tmp_path / "consistent.toml"
    file.write_text(FILE)

    def values(*words: str):
        said = consistent("config", *words, "--json")
        return {each["key"]: (each["value"], each["from"]) for each in said.document["values"]}

    return values


def test_a_value_is_taken_from_the_first_that_has_one(project, monkeypatch):
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


def test_a_variable_whose_value_cannot_be_is_named(project, consistent, monkeypatch):
    monkeypatch.setenv("CONSISTENT_TRUNCATE_OLDER_THAN", "soon")

    assert "The value is from CONSISTENT_TRUNCATE_OLDER_THAN." in consistent("truncate").err


def test_a_flag_of_the_file_is_unset_by_a_word(project):
    assert project("truncate", "--no-allow-undated")["truncate.allow-undated"] == (False, "command line")


def test_a_group_of_commands_has_all_values(project, consistent):
    assert project("letters") == project()
    assert "No such command 'trunc'" in consistent("config", "trunc").err


def test_a_command_takes_the_values(project, consistent, store, tmp_path):
    (tmp_path / "consistent.toml").write_text(f'store = "{store}"\ntable = "games"\n')

    assert consistent("show", "--json").document["streams"]
    assert "other" in consistent("show", "--table", "other").err


def test_paths_count_from_the_folder_of_the_file(project, tmp_path, monkeypatch):
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")

    found = project("publish")

    assert found["store"] == (f"sqlite:///{tmp_path}/raffle.db", "../consistent.toml:1")
    assert found["publish.winners.to"][0] == f"sqlite:///{tmp_path}/published.db"


def test_rules_of_the_file_are_of_no_policy(consistent, store, tmp_path):
    (tmp_path / "consistent.toml").write_text(
        f'store = "{store}"\ntable = "games"\n[truncate]\nolder-than = "30d"\n'
    )

    policy = consistent("truncate", "--policy", "set", "--hold", "--json").document

    assert (policy["hold"], policy["older_than_seconds"]) == (True, None)


def test_the_only_target_is_meant_and_others_are_named(project, consistent, tmp_path):
    assert project("publish")["publish.winners.map"][0] == ["Won=winners"]
    (tmp_path / "consistent.toml").write_text(FILE + '[publish.losers]\nto = "sqlite:///losers.db"\n')

    assert project("publish", "--to", "losers")["publish.losers.map"] == (None, "default")
    assert "the targets winners, losers: select one with --to" in consistent("publish").err
    assert "did you mean winners?" in consistent("publish", "--to", "winner").err
    more = "[publish.slow]\nto = 'sqlite:///x.db'\ntimeout = '5m'\n"
    (tmp_path / "consistent.toml").write_text(more)
    refused = consistent("run", "x.jsonl", "--publish", "slow").err
    assert (
        "consistent.toml:3: --publish does not support timeout: use `consistent publish --to slow`" in refused
    )


def test_pyproject_has_it_too(consistent, tmp_path):
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "x"\n[tool.consistent]\ntable = "here"\n')

    said = consistent("config", "batches")

    assert "pyproject.toml:4" in said.out


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
    ],
)  # fmt: skip
def test_what_cannot_be_names_file_line_and_what_to_write(consistent, tmp_path, text, sentence):
    (tmp_path / "consistent.toml").write_text(text)

    said = consistent("batches", "--store", "sqlite:///none.db", "--table", "games")

    assert (said.code, said.out) == (2, "")
    assert said.err.startswith(f"Error: {sentence}")
    assert consistent("batches", "--help").code == 0


@pytest.mark.parametrize("is_there", [True, False])
def test_an_environment_that_is_not_there_is_refused(consistent, tmp_path, is_there):
    if is_there:
        (tmp_path / "consistent.toml").write_text(FILE)

    said = consistent("batches", "--env", "prd")

    assert said.code == 2
    assert ("did you mean prod?" if is_there else "There is no environment 'prd'") in said.err


def test_a_secret_in_the_file_is_hidden_and_warned_of(project, consistent, tmp_path):
    secret = "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=c2VjcmV0"
    (tmp_path / "consistent.toml").write_text(
        f'store = "{secret}"\n[publish.http]\nto = "env:TARGET"\nheader = {{ Authorization = "x", B = "file:b" }}\n'
    )

    said = consistent("config", "publish", "--json")

    assert "c2VjcmV0" not in said.out + said.err
    assert "Warning: consistent.toml:1: store contains a secret" in said.err
    assert "Warning: consistent.toml:4: header" in said.err
    found = {each["key"]: each["value"] for each in said.document["values"]}
    assert (found["store"], found["publish.http.to"]) == ("...", "env:TARGET")
    assert found["publish.http.header"] == ["Authorization=...", "B=file:b"]


def test_a_value_may_be_in_a_file_of_its_own(consistent, store, tmp_path):
    (tmp_path / "secret").write_text(f"{store}\n")
    (tmp_path / "consistent.toml").write_text('store = "file:secret"\ntable = "games"\n')

    assert consistent("show", "--json").document["streams"]
    assert "There is no file none" in consistent("show", "--store", "file:none").err


def test_settings_of_spark_are_refused_where_they_cannot_be_applied(project, consistent, tmp_path):
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
    """The file has one value for a key: commands that share it must take the same."""
    known: dict[tuple[str, str], object] = {}
    for key, (declared, _) in schema(typer.main.get_command(application)):
        assert known.setdefault(key, declared.kind) == declared.kind, key
    assert {group for group, _ in known} == {
        "",
        "batch",
        "log",
        "publish",
        "serve",
        "spark",
        "stores",
        "truncate",
    }


def test_each_key_is_an_option_and_each_command_has_usual_ones():
    def commands(command):
        yield from (each for inner in getattr(command, "commands", {}).values() for each in commands(inner))
        if isinstance(command, Command):
            yield command

    for command in commands(typer.main.get_command(application)):
        usual = [each for each in command.declared.values() if not each.is_rare and not each.group]
        assert len(usual) <= 16, command.name


def test_a_log_is_named_without_an_option(project, consistent):
    assert project("run", "a.jsonl")["log.messages"] == ("a.jsonl", "command line")
    assert "unexpected extra argument (b)" in consistent("run", "a", "b").err
    assert (
        "no-such-log"
        in consistent("run", "no-such-log", "--app", "samples.shooting_range:app", "--out", "x").err
    )


def test_what_is_unfinished_is_in_place_of_the_log_of_the_file(consistent, store, tmp_path):
    app, log = "samples.shooting_range:app", 'messages = "log.jsonl"'
    (tmp_path / "consistent.toml").write_text(
        f'store = "{store}"\ntable = "games"\napp = "{app}"\n[log]\n{log}\n'
    )

    said = consistent("run", "--unfinished", "1h", "--out", "out")

    assert "state-based" in said.err


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("consistent.toml", b"\xff", "consistent.toml is not UTF-8 text"),
        ("consistent.toml", b'older-than = "1d"\nolder_than = "2d"', "older-than is given twice"),
        (
            "consistent.toml",
            b"\nstore = 'foo'",
            "consistent.toml:2: store is invalid: The form of the store URL is unknown",
        ),
        (
            "consistent.toml",
            b"app = 'raffle'",
            "consistent.toml:1: app is invalid: it must be MODULE:ATTRIBUTE",
        ),
        ("consistent.toml", b"[spark.settings]\nspark.driver.memory = '2g'", "quote names with dots"),
        ("consistent.toml", b"[publish]\nto = 'sqlite:///x.db'", "use [publish.NAME]"),
        (
            "pyproject.toml",
            b"[[tool.consistent]]\ntable = 'games'",
            "consistent must be a table, [tool.consistent]",
        ),
        ("pyproject.toml", b"[tool]\nconsistent = 3", "consistent must be a table, [tool.consistent]"),
    ],
)
def test_a_file_that_cannot_be_meant_is_told_in_one_line(consistent, tmp_path, name, text, told):
    (tmp_path / name).write_bytes(text)

    said = consistent("batches")

    assert said.code == 2
    assert told in said.err


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


def test_what_is_there_and_is_no_file_is_told(consistent, tmp_path):
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
def test_settings_that_are_secret_are_not_shown(consistent, secret):
    assert "hidden" not in consistent("config", "run", "--settings", secret, "--json").out


def test_the_token_of_a_server_of_spark_is_not_shown(consistent, monkeypatch):
    monkeypatch.setenv("CONSISTENT_SPARK_REMOTE", "sc://h:15002/;token=hidden")

    assert "hidden" not in consistent("config", "run", "--json").out


@pytest.mark.parametrize("words", ["truncate --older-than 5", "truncate --keep-last 0", "truncate extra"])
def test_what_a_command_refuses_is_no_value_of_it(project, consistent, words):
    assert consistent("config", *words.split()).code == 2


def test_values_are_those_that_the_command_takes(project):
    assert project("publish", "--to", "winners")["publish.winners.to"][0].endswith("published.db")
    assert "truncate.older-than" not in project("truncate", "--policy", "set")
