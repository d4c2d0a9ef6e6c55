"""`consistent publish` sends the outputs of batches to a target."""

from __future__ import annotations

import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from runtime.cli.batch_command import command_with, holds_secret, remember
from tests.plugins.telemetry import samples
from tests.support.done_batches import BATCH, TABLE, games, make_batch, outcome, output

TO_FILE = ("--to", "sqlite:///out.db")
COUNTING = """
def send(message):
    with open("sent", "a") as sent:
        print(message.customer, message.message_id, file=sent)
"""


@pytest.fixture
def batch(tmp_path):
    url = f"sqlite:///{tmp_path}/store.db"
    make_batch(url, tmp_path / "out", games(4, 6))
    (tmp_path / "counting.py").write_text(COUNTING)
    return ("publish", "--batch", BATCH, "--store", url, "--table", TABLE)


def test_a_batch_is_published_to_a_file_once_and_counted(consistent, batch, tmp_path):
    metrics = ("--metrics-file", "published.prom")
    said = consistent(*batch, *TO_FILE, "--map", "Hit=hits", "--types", "Hit", "--slices", "2", *metrics)
    again = consistent(*batch, *TO_FILE, "--map", "Hit=hits", "--types", "Hit", "--json", *metrics)

    assert said.code == 0, said.err
    assert "2 slices, of which 2 were sent now, with 16 outputs" in said.out
    with closing(sqlite3.connect(tmp_path / "out.db")) as target:
        assert target.execute("SELECT count(*) FROM hits").fetchone() == (16,)
    assert again.document["slices_sent"] == again.document["outputs_sent"] == 0
    assert again.document["batch_id"] == BATCH
    assert samples((tmp_path / "published.prom").read_text())["consistent_published_outputs_total",] == 16


ODD_SENDERS = f"{COUNTING}\nclass Klass: ...\n\nfewer = lambda: None\n"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ("--to ftp://x", "Use sqlite:///FILE"),
        ("--to env:NOWHERE", "The environment variable NOWHERE is not set."),
        ("--to sqlite:///store.db", "The target is the store itself"),
        ("--to sqlite:///linked.db", "The target is the store itself"),
        ("--to sqlite:///out.db --map Hit", "Use the form NAME=VALUE."),
        ("--to sqlite:///out.db --types Typo", "Choose --types from Hit, Missed"),
        ("--to sqlite:///out.db --types Hit --types missed", "has the type missed."),
        ("--to sqlite:///out.db --redrive --master local[2]", "exclude each other"),
        ("--to sqlite:///out.db --out nowhere", "Use --out to name the folder that the batch wrote to."),
        ("--to sqlite:///out.db --batch other", "There is no batch other"),
        ("--to nowhere:send", "nowhere"),
        ("--to odd:call", "The module odd has no function call. Its functions: send, fewer."),
        (
            "--to odd:Klass",
            "odd:Klass is not a function but the class Klass: write `def Klass(message): ...`",
        ),
        ("--to odd:fewer", "The sender odd:fewer must take one message"),
        ("--to counting:send --strategy at-most-once", "but AT_LEAST_ONCE_SENDING_CUSTOMERS is '17'"),
    ],
)
def test_what_cannot_be_published_is_one_sentence(consistent, batch, monkeypatch, options, sentence):
    Path("linked.db").symlink_to("store.db")
    Path("odd.py").write_text(ODD_SENDERS)
    monkeypatch.setenv("AT_LEAST_ONCE_SENDING_CUSTOMERS", "17")

    said = consistent(*batch, *options.split())

    is_impossible = "--out" in options or "--batch" in options
    assert (said.code, sentence in said.err) == (1 if is_impossible else 2, True), said.err


POST = """
from pathlib import Path
from runtime.publishing import PermanentError

def send(message):
    if not Path("mended").exists() and message.type == "Missed":
        raise PermanentError("no such topic")
"""


def test_rejected_outputs_are_listed_and_redriven(consistent, batch, tmp_path):
    (tmp_path / "posting.py").write_text(POST)
    to = (*batch, "--to", "posting:send", "--strategy", "at-least-once")
    said, again = consistent(*to), consistent(*to, "--json")
    assert (said.code, again.code) == (3, 3), said.err
    assert "sent now, with 16 outputs." in said.out
    assert "Use --letters to list all of them, and --redrive to send them" in said.out

    before = consistent(*to, "--letters", "--json").document["refused"]
    assert consistent(*to, "--redrive").code == 3
    (tmp_path / "mended").touch()
    redriven = consistent(*to, "--redrive")
    after = consistent(*to, "--letters")

    assert {(each["type"], each["why"]) for each in before} == {("Missed", "PermanentError: no such topic")}
    assert len(before) == 8
    assert redriven.code == 0
    assert "Sent again of batch b1 at posting:send: 8 outputs." in redriven.out
    assert "There are no dead letters of batch b1 at posting:send." in after.out


ORDERED = """
from pathlib import Path
from runtime.publishing import PermanentError

def send(message):
    if message.message_id == "y1" and not Path("mended").exists():
        raise PermanentError("no such topic")
    with open("sent", "a") as sent:
        print(message.batch_id, message.message_id, file=sent)
"""


@pytest.fixture
def batches(tmp_path):
    """Make batches whose ids are not in the order of the batches. Some have nothing to publish."""
    url = f"sqlite:///{tmp_path}/store.db"
    made = (("z", "z1", True), ("m", "", True), ("y", "y1 y2", True), ("a", "a1", False))
    for batch_id, names, ends in made:
        rows = [outcome("g", *(output(name, number) for number, name in enumerate(names.split())))]
        make_batch(url, tmp_path / "out", [rows], batch_id=batch_id, ends=ends)
    return ("--store", url, "--table", TABLE)


def test_without_a_batch_all_unpublished_outputs_are_published_in_the_order_of_batches(
    consistent, batches, tmp_path
):
    (tmp_path / "ordered.py").write_text(ORDERED)
    publish = ("publish", *batches, "--to", "ordered:send")

    def unpublished():
        listed = consistent("batches", *batches, "--json").document["batches"]
        return {each["batch_id"] for each in listed if not each["publications"]}

    assert unpublished() == {"z", "m", "y", "a"}
    assert consistent(*publish, "--letters", "--json").document == {"batches": []}
    first = consistent(*publish, "--json")
    sent = (tmp_path / "sent").read_text().splitlines()
    assert (first.code, [each["batch_id"] for each in first.document["batches"]]) == (3, ["z", "y"])
    assert sent == ["z z1", "y y2"]
    assert unpublished() == {"m", "a"}
    assert "ordered:send" in consistent("batches", *batches).out

    # Rejected outputs are reported until they are redriven. Only batches with such outputs are read.
    again, letters = consistent(*publish, "--json"), consistent(*publish, "--letters", "--json")
    (tmp_path / "mended").touch()
    redriven, after = consistent(*publish, "--redrive", "--json"), consistent(*publish, "--json")
    assert "no outputs that ordered:send rejected" in consistent(*publish, "--letters").out

    assert [each.code for each in (again, letters, redriven, after)] == [3, 0, 0, 0]
    assert [each.document["batches"][0]["batch_id"] for each in (again, letters, redriven)] == ["y"] * 3
    assert [each["message_id"] for each in letters.document["batches"][0]["refused"]] == ["y1"]
    assert after.document == {"batches": []}
    assert "no outputs that ordered:send lacks" in consistent(*publish).out
    assert (tmp_path / "sent").read_text().splitlines() == [*sent, "y y1"]


def test_an_unpublished_batch_is_listed_with_its_progress(consistent, batches, tmp_path):
    (tmp_path / "down.py").write_text("def send(message): raise ConnectionError('down')")
    publish = ("publish", *batches, "--to", "down:send", "--strategy", "at-least-once", "--attempts", "1")
    assert consistent(*publish).code == 1

    said = consistent("batches", *batches)

    listed = consistent("batches", *batches, "--json").document["batches"]
    assert {each["batch_id"]: each["publications"] for each in listed}["z"] == [
        {"target": "down:send", "slices": 1, "slices_sent": 0}
    ]
    assert "0 of 1 slices" in " ".join(said.out.split())
    assert "Unpublished outputs: y, z." in said.out


def test_a_batch_without_outcomes_is_skipped_and_unknown_types_are_refused(consistent, batches, tmp_path):
    shutil.rmtree(tmp_path / "out" / "batch_id=z")
    publish = ("publish", *batches, *TO_FILE)

    said, one = consistent(*publish, "--json"), consistent(*publish, "--batch", "z")

    assert (said.code, one.code) == (1, 1)
    assert "Batch z is skipped" in said.err
    assert [each["batch_id"] for each in said.document["batches"]] == ["y"]
    assert consistent(*publish, "--types", "Typo").code == 2


def test_a_send_that_crashed_is_reported_as_in_doubt(consistent, batch, tmp_path):
    (tmp_path / "dying.py").write_text("import os\n\ndef send(message):\n    os._exit(1)\n")
    to = (*batch, "--to", "dying:send", "--types", "Hit", "--slices", "1", "--concurrency", "1")
    command = [sys.executable, "-m", "runtime", *to]
    assert subprocess.run(command, cwd=tmp_path, check=False).returncode == 1

    said = consistent(*to, "--letters", "--json")

    assert said.document["keys_without_end"] == [["default", "g0-1"]]
    assert "g0-1" in consistent(*to, "--letters").out


PLACES = ["postgresql", "http", "kafka", "redis", "env:http", "env:kafka", "env:postgresql"]
ODD = [("http", f"hun{each}ter2") for each in ("%", " ", "#", "?", ":", "[", "\t")]


@pytest.mark.parametrize(
    ("place", "password"), [*ODD, *((place, f"hun{each}ter2") for place in PLACES for each in "/@\n")]
)
def test_no_part_of_a_password_is_shown_and_the_hint_names_its_option(
    consistent, batch, monkeypatch, place, password
):
    monkeypatch.setenv("TARGET", url := f"{place.removeprefix('env:')}://user:{password}@127.0.0.1:9/x")
    to = ("--to", "counting:send", "--keys", url) if place == "redis" else ("--to", url)
    to = ("--to", "env:TARGET") if place.startswith("env:") else to

    said = consistent(*batch, *to, "--attempts", "1", "--timeout", "1s")

    assert (said.code in {1, 2}, "Something unexpected" in said.err) == (True, False)
    assert not any(part in said.out + said.err for part in ("hun", "ter2"))
    assert (f"write {to[-2]} env:NAME" in said.err) is not place.startswith("env:")


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--to", "env:TARGET"),
        ("--to", "env:http://user:hunter2@host/"),
        ("--header", "Authorization: Bearer hunter2"),
        ("--header", "X-Key=hunter2\nX: y"),
        ("--store", "env:azurite;AccountKey=hunter2"),
    ],
)
def test_a_secret_of_a_target_or_in_a_wrong_place_is_not_shown(consistent, batch, monkeypatch, option, value):
    monkeypatch.setenv("TARGET", "http://user:hunter2@127.0.0.1:9/x?key=hunter2")

    said = consistent(*batch, "--to", "http://127.0.0.1:9/", option, value, "--attempts", "1")

    assert said.code in {1, 2}
    assert "hunter2" not in said.out + said.err
    assert ("Run the same command again to resume" in said.err) or value != "env:TARGET"


BUS = "Endpoint=sb://{};SharedAccessKeyName=n;SharedAccessKey=c2VjcmV0;UseDevelopmentEmulator=true"


@pytest.mark.parametrize(
    "to",
    [
        "kafka://{}",
        *(pytest.param(to, marks=pytest.mark.thorough) for to in ("postgresql://{}/x", "http://{}", BUS)),
    ],
)
def test_a_target_that_never_answers_ends_in_time_with_one_sentence(batch, tmp_path, to):
    with socket.create_server(("127.0.0.1", 0)) as silent:  # it accepts connections, and sends nothing
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        words = ("--to", "env:TARGET", "--timeout", "1s", "--attempts", "2", "--slices", "1")
        began = time.monotonic()
        said = subprocess.run(
            [sys.executable, "-m", "runtime", *batch, *words],
            cwd=tmp_path, env={**os.environ, "TARGET": to.format(address)}, capture_output=True, text=True, check=False,
        )  # fmt: skip

    assert (said.returncode, time.monotonic() - began < 30) == (1, True)
    lines = [line for line in said.stderr.splitlines() if line and not line.startswith(("Publishing", " "))]
    assert len(lines) == 1, said.stderr
    assert "Run the same command again to resume" in lines[0]


def test_the_command_that_resumes_shows_no_password_and_no_header():
    remember(["run", "--publish", "postgresql://user:hunter2@host/db", "--header", "Authorization=hunter2"])
    typed, is_warned_of = command_with("--batch-id", "b1"), holds_secret()
    remember(["run", "--publish", "env:TARGET", "--header", "Authorization=env:TOKEN"])

    assert (typed, is_warned_of) == ("consistent run --publish ... --header ... --batch-id b1", "--publish ")
    assert holds_secret() is None
    assert command_with("--batch-id", "b1").count("env:") == 2


@pytest.mark.parametrize(
    ("words", "instead"),
    [
        ("--header Authorization=hunter2", "--header NAME="),
        ("--messages=kafka://me:hunter2@host/t", "--messages "),
        ("--out s3://me:hunter2@bucket", ""),
        ("--cascade kafka://me:hunter2@host/t", ""),
    ],
)
def test_a_reference_is_recommended_only_for_an_option_that_takes_one(words, instead):
    remember(["run", "--store", "x", *words.split()])
    assert holds_secret() == instead
