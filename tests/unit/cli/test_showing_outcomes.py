"""`consistent outcomes` shows what batches did and published, from the files alone."""

import json
import subprocess
import sys
from datetime import UTC, datetime
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

from runtime.messages.envelope import Envelope
from runtime.messages.outcome import Outcome, Outcomes, Output, Reason, Status, dead_letter
from runtime.spark.worker.outcomes import to_arrow

NOON = int(datetime(2026, 3, 1, 12, tzinfo=UTC).timestamp() * 1_000_000)


def won(number, name):
    return Output(f"w{number}", "Won", json.dumps({"name": name}), number, NOON, {"from": "raffle"})


def processed(number, *outputs, status=Status.PROCESSED):
    return Outcome(
        Envelope(f"m{number}", "Drawn", "{}"), "Raffle", f"r{number % 2}", status, None, None, number, outputs
    )


def refused(number):
    return dead_letter(
        Envelope(f"m{number}", "Drawn", "{}"),
        Reason.HANDLER_ERROR,
        f"ValueError: {number} is too much",
        "Raffle",
        "r1",
    )


def write(folder, batch, round_, outcomes, *, is_whole=True):
    place = folder / f"batch_id={batch}" / f"round={round_}"
    place.mkdir(parents=True)
    pq.write_table(pa.Table.from_batches([to_arrow([Outcomes.of(outcomes)])]), place / "part-0.parquet")
    if is_whole:
        (place / "_batch-token-digest").touch()


@pytest.fixture
def out(tmp_path):
    folder = tmp_path / "outcomes"
    ada, grace = won(1, "Ada"), won(2, "Grace")
    write(folder, "first", 0, [processed(1, ada), processed(2), *map(refused, range(10, 14))])
    write(
        folder, "first", 1, [dead_letter(Envelope("m20", "Lost", "{}"), Reason.UNKNOWN_TYPE, "No handler.")]
    )
    write(folder, "second", 0, [processed(1, ada, status=Status.DUPLICATE), processed(3, grace)])
    write(folder, "third", 0, [processed(4, won(3, "Nobody"))], is_whole=False)
    return folder


def test_who_won(consistent, out):
    said = consistent("outcomes", "--out", str(out))

    assert said.code == 0, said.err
    published = said.out.partition("Published")[2].partition("Dead letters")[0]
    assert published.count('{"name": "Ada"}') == published.count('{"name": "Grace"}') == 1
    assert "Nobody" not in said.out


def test_what_is_held_back_is_left_out_and_shown_by_its_name_as_what_is_not_published(consistent, out):
    write(out, "fourth", 0, [processed(5, won(4, "Edsger"))])
    (out / "batch_id=fourth" / "_held-back").touch()

    all_ = consistent("outcomes", "--out", str(out))
    named = [
        consistent("outcomes", "--out", str(out), "--batch-id", "fourth"),
        consistent("outcomes", "--out", f"{out}/batch_id=fourth/"),
    ]

    assert "Edsger" not in all_.out
    assert all_.err == "Batch fourth is held back and left out: --batch-id fourth shows it.\n"
    for said in named:
        assert "Not published, as the batch is held back" in said.out
        assert "Edsger" in said.out
        assert "nothing of it is published" in said.err
    assert consistent("outcomes", "--out", str(out), "--json").document["held_back"] == ["fourth"]


def test_there_is_nothing_but_what_is_held_back(consistent, tmp_path):
    write(tmp_path, "only", 0, [processed(1)])
    (tmp_path / "batch_id=only" / "_held-back").touch()

    said = consistent("outcomes", "--out", str(tmp_path))

    assert (said.code, said.out) == (1, "")
    assert said.err.endswith("that are held back: add --batch-id only.\n")


def test_a_folder_on_another_file_system(consistent, out, monkeypatch):
    def from_uri(url):
        assert url.startswith("abfss://outcomes@account.dfs.core.windows.net")
        path = url.partition("windows.net/")[2]
        return SubTreeFileSystem(str(out.parent), LocalFileSystem()), path

    monkeypatch.setattr("pyarrow.fs.FileSystem", SimpleNamespace(from_uri=from_uri))
    url = f"abfss://outcomes@account.dfs.core.windows.net/{out.name}"

    there, here = (
        consistent("outcomes", "--out", url, "--json"),
        consistent("outcomes", "--out", str(out), "--json"),
    )

    assert there.code == 0, there.err
    assert there.document == here.document
    assert consistent("outcomes", "--out", f"{url}/batch_id=first", "--id", "m1").code == 0


def test_a_round_that_is_being_copied_is_not_in_place(consistent, out):
    mark = out / "batch_id=second" / "round=0" / "_batch-token-digest"
    being_copied = mark.rename(f"{mark}-unfinished")

    assert "Grace" not in consistent("outcomes", "--out", str(out)).out

    # ... until its last mark is there, also when a second driver that copied the same died before it removed the first
    mark.touch()
    assert being_copied.exists()
    assert "Grace" in consistent("outcomes", "--out", str(out)).out


@pytest.mark.parametrize(
    ("url", "code", "sentence"),
    [
        ("foo://bucket/out", 2, "Use a path, a url that pyarrow knows, or install fsspec"),
        ("file", 1, "file is a file: name the folder that batches write"),
        ("nowhere", 1, "There are no outcomes in nowhere: `consistent run --out nowhere` writes them."),
    ],
)
def test_a_folder_that_is_none(consistent, tmp_path, url, code, sentence):
    (tmp_path / "file").touch()

    said = consistent("outcomes", "--out", url)

    assert (said.code, said.out) == (code, "")
    assert sentence in said.err


def test_what_became_of_how_many(consistent, out):
    document = consistent("outcomes", "--out", str(out), "--json").document

    assert document["counts"] == [
        {"handler": None, "status": "dead_letter", "reason": "unknown_type", "count": 1},
        {"handler": "Raffle", "status": "dead_letter", "reason": "handler_error", "count": 4},
        {"handler": "Raffle", "status": "duplicate", "reason": None, "count": 1},
        {"handler": "Raffle", "status": "processed", "reason": None, "count": 3},
    ]


def test_dead_letters_are_in_groups_of_like_errors(consistent, out):
    document = consistent("outcomes", "--out", str(out), "--json").document

    assert document["dead_letters"] == [
        {
            "reason": "handler_error",
            "handler": "Raffle",
            "type": "Drawn",
            "error": "ValueError: 10 is too much",
            "count": 4,
            "message_ids": ["m10", "m11"],
        },
        {
            "reason": "unknown_type",
            "handler": None,
            "type": "Lost",
            "error": "No handler.",
            "count": 1,
            "message_ids": ["m20"],
        },
    ]
    assert "m10, m11, ..." in consistent("outcomes", "--out", str(out)).out


@pytest.mark.parametrize(
    ("filters", "messages"),
    [
        (["--status", "duplicate"], ["m1"]),
        (["--batch-id", "second"], ["m1", "m3"]),
        (["--handler", "Raffle", "--status", "processed"], ["m1", "m2", "m3"]),
        (["--reason", "unknown_type"], ["m20"]),
        (["--id", "m2"], ["m2"]),
        (["--id", "r0"], ["m2"]),
        (["--limit", "2"], ["m1", "m2"]),
        (["--id", "nobody"], []),
    ],
)
def test_only_what_is_asked_for(consistent, out, filters, messages):
    document = consistent("outcomes", "--out", str(out), *filters, "--json").document

    assert [row["message_id"] for row in document["outcomes"]] == messages
    assert all(
        f" {message} " in consistent("outcomes", "--out", str(out), *filters).out for message in messages
    ) or ("--limit" in filters or "--batch-id" in filters)


def test_an_outcome_with_all_that_is_in_it(consistent, out):
    (row,) = consistent("outcomes", "--out", str(out), "--id", "m3", "--json").document["outcomes"]

    assert (row["batch_id"], row["round"], row["status"], row["version"]) == ("second", 0, "processed", 3)
    assert row["outputs"] == [
        {
            "message_id": "w2",
            "type": "Won",
            "body": '{"name": "Grace"}',
            "sequence": 2,
            "enqueued_at": "2026-03-01T12:00:00Z",
            "headers": {"from": "raffle"},
        }
    ]


def test_all_are_exported_whatever_the_limit(consistent, out, tmp_path):
    file = tmp_path / "dead.jsonl"

    said = consistent(
        "outcomes", "--out", str(out), "--status", "dead_letter", "--limit", "1", "--export", str(file)
    )

    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert [row["message_id"] for row in rows] == ["m10", "m11", "m12", "m13", "m20"]
    assert json.loads(rows[0]["delivery"])["body"] == "{}"
    assert said.err == f"Wrote 5 outcomes to {file}.\n"


def test_the_folder_of_one_batch(consistent, out):
    document = consistent("outcomes", "--out", str(out / "batch_id=second"), "--json").document

    assert [row["message_id"] for row in document["outcomes"]] == ["m1", "m3"]


@pytest.mark.parametrize("more", [[], ["--batch-id", "second"]])
def test_a_folder_without_outcomes(consistent, tmp_path, more):
    said = consistent("outcomes", "--out", str(tmp_path), *more)

    assert said.code == 1
    assert said.err.startswith("Error: There are no outcomes")


def test_what_cannot_be_shown_or_exported_is_told_before_anything_is_read(consistent, out, tmp_path):
    (tmp_path / "log.jsonl").touch()

    for words, sentence in (
        (
            ["--out", "log.jsonl"],
            "log.jsonl is a file: name the folder that batches write their outcomes to.",
        ),
        (
            ["--out", str(out), "--export", "no/x.jsonl"],
            "no/x.jsonl cannot be written: there is no folder no.",
        ),
        (
            ["--out", str(out), "--status", "dead"],
            "'--status': 'dead' is not one of 'processed', 'duplicate'",
        ),
    ):
        said = consistent("outcomes", *words)
        assert (said.code in (1, 2), said.out) == (True, "")
        assert sentence in said.err


TAKES_LONG = {"pyspark", "py4j", "pandas", "azure", "aiohttp", "duckdb"}


@pytest.mark.parametrize("more", [[], ["--status", "processed", "--id", "m1", "--json"]])
def test_what_takes_long_to_import_is_not(out, more):
    program = (
        "import sys; from runtime.cli import main\n"
        f"try: main(['outcomes', '--out', {str(out)!r}, *{more}])\n"
        f"finally: sys.stderr.write(' '.join({TAKES_LONG} & set(sys.modules)))"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")
    assert "Ada" in done.stdout
