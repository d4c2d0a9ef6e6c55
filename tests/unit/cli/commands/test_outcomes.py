"""`consistent outcomes` shows what batches did and published from the files alone, `consistent batches` the ledger."""

import json
import subprocess
import sys
from datetime import UTC, datetime
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

from runtime.cli.batch_command import BatchReport, table_of_dead_letters
from runtime.cli.console import Screen
from runtime.ledger.ledger import Ledger
from runtime.messages.envelope import Envelope
from runtime.messages.outcome import DeadLetters, Outcome, Outcomes, Output, Reason, Status, dead_letter
from runtime.spark.worker.outcomes import to_arrow
from tests.support.logs import GAME
from tests.unit.cli.stores import NOW, on_store

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


@pytest.mark.parametrize(
    ("statement", "rows"),
    [
        (
            "select batch_id, round, status, count(*) from outcomes group by all order by all",
            [
                ["first", 0, "dead_letter", 4],
                ["first", 0, "processed", 2],
                ["first", 1, "dead_letter", 1],
                ["second", 0, "duplicate", 1],
                ["second", 0, "processed", 1],
            ],
        ),
        ("select round from outcomes where batch_id = 'first' and round = 1", [[1]]),
        (
            "select message_id, body->>'name', headers['from'], cause, batch_id from outputs order by 1",
            [["w1", "Ada", "raffle", "m1", "first"], ["w2", "Grace", "raffle", "m3", "second"]],
        ),
        ("select enqueued_at from outputs limit 1", [["2026-03-01T12:00:00Z"]]),
        (
            "select count(*) from outputs join state on outputs.published_by = state.handler",
            [[0]],
        ),
    ],
)
def test_outcomes_and_outputs_are_tables_of_sql(consistent, store, out, statement, rows):
    write(out, "fourth", 0, [processed(5, won(4, "Edsger"))])
    (out / "batch_id=fourth" / "_held-back").touch()

    said = consistent("sql", statement, "--store", store, "--table", "games", "--out", str(out), "--json")

    assert (said.code, said.document["rows"]) == (0, rows)


def test_what_is_held_back_is_left_out_and_shown_by_its_name_as_what_is_not_published(consistent, out):
    write(out, "fourth", 0, [processed(5, won(4, "Edsger"))])
    (out / "batch_id=fourth" / "_held-back").touch()

    all_ = consistent("outcomes", "--out", str(out))
    named = [
        consistent("outcomes", "--out", str(out), "--batch-id", "fourth"),
        consistent("outcomes", "--out", f"{out}/batch_id=fourth/"),
    ]

    assert "Edsger" not in all_.out
    assert all_.err == "Batch fourth is held back and omitted: --batch-id fourth shows it.\n"
    for said in named:
        assert "Not published, because the batch is held back" in said.out
        assert "Edsger" in said.out
        assert "is not published" in said.err
    assert consistent("outcomes", "--out", str(out), "--json").document["held_back"] == ["fourth"]


def test_there_is_nothing_but_what_is_held_back(consistent, tmp_path):
    write(tmp_path, "only", 0, [processed(1)])
    (tmp_path / "batch_id=only" / "_held-back").touch()

    said = consistent("outcomes", "--out", str(tmp_path))

    assert (said.code, said.out) == (1, "")
    assert said.err.endswith("are held back: select one, such as --batch-id only.\n")


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

    found = [(each["error"], each["count"], each["message_ids"]) for each in document["dead_letters"]]
    assert found == [("ValueError: 10 is too much", 4, ["m10", "m11"]), ("No handler.", 1, ["m20"])]
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
    (output,) = row["outputs"]
    assert (output["message_id"], output["body"], output["sequence"]) == ("w2", '{"name": "Grace"}', 2)
    assert (output["enqueued_at"], output["headers"]) == ("2026-03-01T12:00:00Z", {"from": "raffle"})


def test_all_are_in_the_document_without_a_limit(consistent, out):
    said = consistent("outcomes", "--out", str(out), "--status", "dead_letter", "--limit", "0", "--json")

    rows = said.document["outcomes"]
    assert [row["message_id"] for row in rows] == ["m10", "m11", "m12", "m13", "m20"]
    assert json.loads(rows[0]["delivery"])["body"] == "{}"


def test_the_folder_of_one_batch(consistent, out):
    document = consistent("outcomes", "--out", str(out / "batch_id=second"), "--json").document

    assert [row["message_id"] for row in document["outcomes"]] == ["m1", "m3"]


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


ON_STORE = ["--store", "sqlite:///store.db", "--table", "games"]


@pytest.fixture
def batches(store):
    """One batch that is published and one that died after its first round."""

    async def begin(table):
        ledger = Ledger(table, NOW)
        published = await ledger.begin("b1", "some input", "outcomes")
        published = await ledger.commit_round(published, 0, {"processed": 4, "duplicate": 1, "outputs": 2}, 0)
        await ledger.publish(published)
        died = await ledger.begin("b2", "other input", "outcomes")
        await ledger.commit_round(died, 0, {"processed": 1, "outputs": 1}, 1)

    on_store(store, begin)


def test_all_batches_are_listed(consistent, batches):
    document = consistent("batches", *ON_STORE, "--json").document

    assert [(each["batch_id"], each["status"], each["rounds"]) for each in document["batches"]] == [
        ("b2", "started", 1),
        ("b1", "published", 1),
    ]
    published = document["batches"][1]
    assert published["counts"] == {"duplicate": 1, "outputs": 2, "processed": 4}
    assert (published["out"], published["input"], published["number"]) == ("outcomes", "some input", 1)


def test_how_to_go_on_is_said_of_batches_that_have_not_ended(consistent, batches):
    said = consistent("batches", *ON_STORE)

    assert "1 duplicate, 2 outputs, 4 processed" in said.out
    assert "1 output, 1 processed" in said.out
    assert "Batch b2 has not ended" in said.out
    assert "--batch-id b2 --out outcomes" in said.out
    assert "Batch b1 has not ended" not in said.out


def test_what_is_to_be_pasted_is_quoted(consistent, store):
    records = []

    async def begin(table):
        records.append(await Ledger(table, NOW).begin("b1", "some input", "/it's mine/out"))

    on_store(store, begin)

    pasted = """--out '/it'"'"'s mine/out'"""
    assert f"--batch-id b1 {pasted} to resume it" in consistent("batches", *ON_STORE).out
    report = BatchReport(records[0], was_published=False, counts=(), dead_letters=())
    assert f"  consistent outcomes {pasted} --batch-id b1" in list(report.parts())


@pytest.mark.parametrize("reason", Reason)
def test_where_replays_differ_it_is_said_to_go_back_before_a_redrive(reason, capsys):
    groups = [DeadLetters(each, "Raffle", "Drawn", "x", 1) for each in (Reason.HANDLER_ERROR, reason)]

    Screen().show(table_of_dead_letters(groups, 2))

    said = " ".join(capsys.readouterr().out.split())
    of_replay = reason in (Reason.NONDETERMINISTIC, Reason.REPLAY_FAILED)
    assert ("deploy the earlier handlers, redrive" in said) is of_replay


def test_a_batch_can_be_given_up(consistent, batches):
    said = consistent("batches", *ON_STORE, "--abandon", "b2", "--yes")

    assert said.code == 0
    assert "Batch b2 is abandoned" in said.out
    listed = consistent("batches", *ON_STORE, "--json").document["batches"]
    assert [each["status"] for each in listed] == ["abandoned", "published"]


def test_where_the_outcomes_of_a_batch_with_an_outbox_are_is_said_when_it_is_given_up(consistent, store):
    async def begin(table):
        ledger = Ledger(table, NOW)
        await ledger.begin("new", "some input", "outcomes", "outbox")
        begun = await ledger.begin("half", "some input", "outcomes", "outbox")
        await ledger.commit_round(begun, 0, {"processed": 1}, 1)

    on_store(store, begin)

    assert "run --unfinished" in consistent("batches", *ON_STORE, "--abandon", "new", "--yes").out
    said = consistent("batches", *ON_STORE, "--abandon", "half", "--yes").out.replace("\n", " ")
    assert "The outcomes of 1 committed round are in outcomes/batch_id=half: publish them from there" in said


def test_the_newest_are_listed_as_many_as_one_asks_for(consistent, batches):
    assert [each["batch_id"] for each in listed(consistent, "--limit", "1")] == ["b2"]
    assert "These are the newest 2 batches" in consistent("batches", *ON_STORE, "--limit", "2").out
    assert "These are the newest 2 batches" not in consistent("batches", *ON_STORE).out


def test_what_ended_long_ago_is_forgotten_and_what_has_not_ended_is_not(consistent, batches):
    said = consistent("batches", *ON_STORE, "--prune", "1s", "--yes")

    assert (said.code, said.out) == (0, "Pruned 1 batch from the ledger of games.\n")
    assert [each["batch_id"] for each in listed(consistent)] == ["b2"]
    again = consistent("batches", *ON_STORE, "--prune", "1s", "--json")
    assert again.document == {"pruned": 0, "publications": 0}


DESTROYING = [
    pytest.param(["batches", "--abandon", "b2"], id="abandon"),
    pytest.param(["batches", "--prune", "1s"], id="prune"),
    pytest.param(["truncate", "--older-than", "7d"], id="truncate"),
    pytest.param(["forget", "ShootingRange", GAME], id="forget"),
]


@pytest.mark.parametrize("command", DESTROYING)
def test_what_cannot_be_undone_is_done_after_a_yes_only(consistent, batches, command):
    said = consistent(*command, *ON_STORE)

    assert (said.code, "confirm with --yes, or try --dry-run first" in said.err) == (2, True)
    assert len(listed(consistent)) == 2


@pytest.mark.parametrize("command", [*DESTROYING[:2], DESTROYING[3]])
def test_a_dry_run_says_that_it_was_one(consistent, batches, command):
    before = listed(consistent)
    said = consistent(*command, *ON_STORE, "--dry-run")

    assert (said.code, "Dry run: " in said.out) == (0, True)
    assert listed(consistent) == before


def listed(consistent, *options):
    return consistent("batches", *ON_STORE, *options, "--json").document["batches"]


def test_a_table_without_batches_says_so(consistent, store):
    assert consistent("batches", *ON_STORE).out == "The table games has no batches.\n"
    assert consistent("batches", *ON_STORE, "--json").document == {"batches": []}
