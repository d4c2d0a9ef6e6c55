"""`consistent publish` sends the outputs of a batch to a target."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from runtime.cli.invocation import command_with, holds_secret, remember
from tests.support.done_batches import BATCH, TABLE, games, make_batch


@pytest.fixture
def batch(tmp_path):
    url = f"sqlite:///{tmp_path}/store.db"
    make_batch(url, tmp_path / "out", games(4, 6))
    return ("publish", "--batch", BATCH, "--store", url, "--table", TABLE)


def test_a_batch_goes_to_a_file(consistent, batch, tmp_path):
    said = consistent(
        *batch, "--to", "sqlite:///out.db", "--map", "Hit=hits", "--types", "Hit", "--slices", "2"
    )

    assert said.code == 0, said.err
    assert "2 slices, of which 2 were sent now, with 16 outputs" in said.out
    with closing(sqlite3.connect(tmp_path / "out.db")) as target:
        assert target.execute("SELECT count(*) FROM hits").fetchone() == (16,)


def test_again_it_is_published_already(consistent, batch):
    consistent(*batch, "--to", "sqlite:///out.db")

    said = consistent(*batch, "--to", "sqlite:///out.db", "--json")

    assert said.document["slices_sent"] == said.document["outputs_sent"] == 0
    assert said.document["batch_id"] == BATCH


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--to", "ftp://x"), "A target is sqlite:///FILE"),
        (("--to", "env:NOWHERE"), "The environment variable NOWHERE is not set."),
        (("--to", "sqlite:///store.db"), "The target is the store itself"),
        (("--to", "sqlite:///out.db", "--map", "Hit"), "--map is written NAME=VALUE, not 'Hit'."),
        (
            ("--to", "sqlite:///out.db", "--out", "nowhere"),
            "Name the folder that the batch wrote to with --out.",
        ),
    ],
)
def test_what_cannot_be_is_told_in_a_sentence(consistent, batch, options, sentence):
    said = consistent(*batch, *options)

    assert (said.code, sentence in said.err) == (2, True), said.err


POST = """
from pathlib import Path
from runtime.delivery import PermanentError

def send(message):
    if not Path("mended").exists() and message.type == "Missed":
        raise PermanentError("no such topic")
"""


def test_what_was_refused_is_listed_and_sent_again(consistent, batch, tmp_path):
    (tmp_path / "posting.py").write_text(POST)
    to = (*batch, "--to", "posting:send", "--strategy", "at-least-once")
    said = consistent(*to)
    assert said.code == 0, said.err
    assert "The same command with --letters lists all of them, and with --redrive sends them" in said.out

    before = consistent(*to, "--letters", "--json").document["refused"]
    (tmp_path / "mended").touch()
    redriven = consistent(*to, "--redrive")
    after = consistent(*to, "--letters")

    assert {(each["type"], each["why"]) for each in before} == {("Missed", "PermanentError: no such topic")}
    assert len(before) == 8
    assert "Sent again of batch b1 at posting:send: 8 outputs." in redriven.out
    assert "There are no dead letters of batch b1 at posting:send." in after.out


def test_letters_are_not_sent_on_spark(consistent, batch):
    said = consistent(*batch, "--to", "sqlite:///out.db", "--redrive", "--master", "local[2]")

    assert (said.code, "are done one at a time" in said.err) == (2, True)


def test_a_batch_that_is_not_there_is_told(consistent, batch):
    said = consistent(*batch[:2], "other", *batch[3:], "--to", "sqlite:///out.db")

    assert said.code == 1
    assert "There is no batch other" in said.err


def test_no_secret_of_a_target_is_shown(consistent, batch, monkeypatch):
    monkeypatch.setenv("TARGET", "http://user:hunter2@127.0.0.1:9/x?key=hunter2")

    said = consistent(*batch, "--to", "env:TARGET", "--attempts", "1")

    assert said.code == 1
    assert "http://127.0.0.1:9/x" in said.err
    assert "the same command goes on with the rest" in said.err
    assert "hunter2" not in said.out + said.err


def test_a_secret_that_is_typed_is_warned_of(consistent, batch):
    said = consistent(*batch, "--to", "http://user:hunter2@127.0.0.1:9/", "--attempts", "1")

    assert "Warning: the command line holds a secret" in said.err
    assert "hunter2" not in said.err


def test_the_command_to_go_on_with_shows_no_password_and_no_header():
    remember(["run", "--publish", "postgresql://user:hunter2@host/db", "--header", "Authorization=hunter2"])
    typed = command_with("--batch-id", "b1")
    is_warned_of = holds_secret()
    remember(["run", "--publish", "env:TARGET", "--header", "Authorization=env:TOKEN"])

    assert typed == "consistent run --publish ... --header ... --batch-id b1"
    assert is_warned_of
    assert not holds_secret()
    assert command_with("--batch-id", "b1").count("env:") == 2
