"""`consistent outcomes` shows outcomes and outputs from the files, `consistent batches` the ledger."""

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
from tests.unit.cli.stores import NOW, ON_STORE, on_store

NOON = int(datetime(2026, 3, 1, 12, tzinfo=UTC).timestamp() * 1_000_000)


def won(number, name):
    return Output(f"w{number}", "Won", json.dumps({"name": name}), number, NOON, {"from": "raffle"})


def processed(number, *outputs, status=Status.PROCESSED):
    drawn = Envelope(f"m{number}", "Drawn", "{}")
    return Outcome(drawn, "Raffle", f"r{number % 2}", status, None, None, number, outputs)


def refused(number):
    error = f"ValueError: {number} is too much"
    return dead_letter(Envelope(f"m{number}", "Drawn", "{}"), Reason.HANDLER_ERROR, error, "Raffle", "r1")


def write(folder, batch, round_, *outcomes, is_whole=True):
    place = folder / f"batch_id={batch}" / f"round={round_}"
    place.mkdir(parents=True)
    pq.write_table(pa.Table.from_batches([to_arrow([Outcomes.of(outcomes)])]), place / "part-0.parquet")
    if is_whole:
        (place / "_batch-token-digest").touch()


@pytest.fixture
def out(tmp_path):
    folder = tmp_path / "outcomes"
    ada, grace = won(1, "Ada"), won(2, "Grace")
    lost = dead_letter(Envelope("m20", "Lost", "{}"), Reason.UNKNOWN_TYPE, "No handler.")
    write(folder, "first", 0, processed(1, ada), processed(2), *map(refused, range(10, 14)))
    write(folder, "first", 1, lost)
    write(folder, "second", 0, processed(1, ada, status=Status.DUPLICATE), processed(3, grace))
    write(folder, "third", 0, processed(4, won(3, "Nobody")), is_whole=False)
    return folder


@pytest.fixture
def held_back(out):
    write(out, "fourth", 0, processed(5, won(4, "Edsger")))
    (out / "batch_id=fourth" / "_held-back").touch()
    return out


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
        ("select count(*) from outputs join state on outputs.published_by = state.handler", [[0]]),
    ],
)
def test_outcomes_and_outputs_are_tables_of_sql(consistent, store, held_back, statement, rows):
    said = consistent("sql", statement, *ON_STORE, "--out", str(held_back), "--json")

    assert (said.code, said.document["rows"]) == (0, rows)


def test_a_held_back_batch_is_omitted_unless_it_is_selected(consistent, held_back):
    all_ = consistent("outcomes", "--out", str(held_back))

    assert "Edsger" not in all_.out
    assert all_.err == "Batch fourth is held back and omitted: --batch-id fourth shows it.\n"
    for selected in (
        ["--out", str(held_back), "--batch-id", "fourth"],
        ["--out", f"{held_back}/batch_id=fourth/"],
    ):
        said = consistent("outcomes", *selected)
        assert "Not published, because the batch is held back" in said.out
        assert "Edsger" in said.out
        assert "is not published" in said.err
    assert consistent("outcomes", "--out", str(held_back), "--json").document["held_back"] == ["fourth"]


def test_a_folder_with_only_held_back_batches_is_refused(consistent, tmp_path):
    write(tmp_path, "only", 0, processed(1))
    (tmp_path / "batch_id=only" / "_held-back").touch()

    said = consistent("outcomes", "--out", str(tmp_path))

    assert (said.code, said.out) == (1, "")
    assert said.err.endswith("are held back: select one, such as --batch-id only.\n")


def test_outcomes_are_read_from_another_file_system(consistent, out, monkeypatch):
    def from_uri(url):
        assert url.startswith("abfss://outcomes@account.dfs.core.windows.net")
        path = url.partition("windows.net/")[2]
        return SubTreeFileSystem(str(out.parent), LocalFileSystem()), path

    monkeypatch.setattr("pyarrow.fs.FileSystem", SimpleNamespace(from_uri=from_uri))
    url = f"abfss://outcomes@account.dfs.core.windows.net/{out.name}"

    there, here = (consistent("outcomes", "--out", each, "--json") for each in (url, str(out)))

    assert there.code == 0, there.err
    assert there.document == here.document
    assert consistent("outcomes", "--out", f"{url}/batch_id=first", "--id", "m1").code == 0


def test_a_folder_may_have_a_colon_in_its_name(consistent, tmp_path):
    write(tmp_path / "env:NAME", "b", 0, processed(1))

    assert consistent("outcomes", "--out", "env:NAME", "--json").document["counts"][0]["count"] == 1


def test_a_round_counts_once_its_last_mark_is_written(consistent, out):
    mark = out / "batch_id=second" / "round=0" / "_batch-token-digest"
    being_copied = mark.rename(f"{mark}-unfinished")

    assert "Grace" not in consistent("outcomes", "--out", str(out)).out

    # ... even if a second driver that copied the same round died before it removed the first mark
    mark.touch()
    assert being_copied.exists()
    assert "Grace" in consistent("outcomes", "--out", str(out)).out


def test_counts_outputs_and_groups_of_dead_letters_are_shown(consistent, out):
    document = consistent("outcomes", "--out", str(out), "--json").document
    shown = consistent("outcomes", "--out", str(out)).out

    assert [tuple(each.values()) for each in document["counts"]] == [
        (None, "dead_letter", "unknown_type", 1),
        ("Raffle", "dead_letter", "handler_error", 4),
        ("Raffle", "duplicate", None, 1),
        ("Raffle", "processed", None, 3),
    ]
    groups = [(each["error"], each["count"], each["message_ids"]) for each in document["dead_letters"]]
    assert groups == [("ValueError: 10 is too much", 4, ["m10", "m11"]), ("No handler.", 1, ["m20"])]
    assert "m10, m11, ..." in shown
    published = shown.partition("Published")[2].partition("Dead letters")[0]
    assert published.count('{"name": "Ada"}') == published.count('{"name": "Grace"}') == 1
    assert "Nobody" not in shown


@pytest.mark.parametrize(
    ("filters", "messages"),
    [
        (["--status", "duplicate"], ["m1"]),
        (["--batch-id", "second"], ["m1", "m3"]),
        (["--handler", "Raffle", "--status", "processed"], ["m1", "m2", "m3"]),
        (["--status", "dead_letter", "--limit", "0"], ["m10", "m11", "m12", "m13", "m20"]),
        (["--reason", "unknown_type"], ["m20"]),
        (["--id", "m2"], ["m2"]),
        (["--id", "r0"], ["m2"]),
        (["--limit", "2"], ["m1", "m2"]),
        (["--id", "nobody"], []),
    ],
)
def test_filters_select_deliveries(consistent, out, filters, messages):
    document = consistent("outcomes", "--out", str(out), *filters, "--json").document

    assert [row["message_id"] for row in document["outcomes"]] == messages
    shown = consistent("outcomes", "--out", str(out), *filters).out
    is_listed = not {"--limit", "--batch-id"} & {*filters}
    assert all(f" {message} " in shown for message in messages) or not is_listed


def test_an_outcome_is_shown_with_all_its_data(consistent, out):
    (row,) = consistent("outcomes", "--out", str(out), "--id", "m3", "--json").document["outcomes"]

    assert (row["batch_id"], row["round"], row["status"], row["version"]) == ("second", 0, "processed", 3)
    (output,) = row["outputs"]
    assert (output["message_id"], output["body"], output["sequence"]) == ("w2", '{"name": "Grace"}', 2)
    assert (output["enqueued_at"], output["headers"]) == ("2026-03-01T12:00:00Z", {"from": "raffle"})


TAKES_LONG = {"pyspark", "py4j", "pandas", "azure", "aiohttp", "duckdb"}


@pytest.mark.parametrize("more", [[], ["--status", "processed", "--id", "m1", "--json"]])
def test_nothing_slow_is_imported(out, more):
    program = (
        "import sys; from runtime.cli import main\n"
        f"try: main(['outcomes', '--out', {str(out)!r}, *{more}])\n"
        f"finally: sys.stderr.write(' '.join({TAKES_LONG} & set(sys.modules)))"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")
    assert "Ada" in done.stdout


@pytest.fixture
def batches(store):
    """One published batch, and one that died after its first round."""

    async def begin(table):
        ledger = Ledger(table, NOW)
        published = await ledger.begin("b1", "some input", "outcomes")
        published = await ledger.commit_round(published, 0, {"processed": 4, "duplicate": 1, "outputs": 2}, 0)
        await ledger.publish(published)
        died = await ledger.begin("b2", "other input", "outcomes")
        await ledger.commit_round(died, 0, {"processed": 1, "outputs": 1}, 1)

    on_store(store, begin)


def listed(consistent, *options):
    return consistent("batches", *ON_STORE, *options, "--json").document["batches"]


def test_batches_are_listed_with_how_to_resume_an_unfinished_one(consistent, batches):
    found, said = listed(consistent), consistent("batches", *ON_STORE).out

    assert [tuple(each[name] for name in ("batch_id", "status", "rounds")) for each in found] == [
        ("b2", "started", 1),
        ("b1", "published", 1),
    ]
    assert found[1]["counts"] == {"duplicate": 1, "outputs": 2, "processed": 4}
    assert [found[1][name] for name in ("out", "input", "number")] == ["outcomes", "some input", 1]
    assert "1 duplicate, 2 outputs, 4 processed" in said
    assert "1 output, 1 processed" in said
    assert "Batch b2 has not ended" in said
    assert "--batch-id b2 --out outcomes" in said
    assert "Batch b1 has not ended" not in said
    assert [each["batch_id"] for each in listed(consistent, "--limit", "1")] == ["b2"]
    assert "These are the newest 2 batches" in consistent("batches", *ON_STORE, "--limit", "2").out


def test_a_table_without_batches_says_so(consistent, store):
    assert consistent("batches", *ON_STORE).out == "The table games has no batches.\n"
    assert listed(consistent) == []


def test_commands_to_paste_are_quoted(consistent, store):
    record = on_store(store, lambda table: Ledger(table, NOW).begin("b1", "some input", "/it's mine/out"))

    pasted = """--out '/it'"'"'s mine/out'"""
    assert f"--batch-id b1 {pasted} to resume it" in consistent("batches", *ON_STORE).out
    report = BatchReport(record, was_published=False, counts=(), dead_letters=())
    assert f"  consistent outcomes {pasted} --batch-id b1" in list(report.parts())


@pytest.mark.parametrize("reason", Reason)
def test_differences_of_replays_advise_to_deploy_the_earlier_handlers(reason, capsys):
    groups = [DeadLetters(each, "Raffle", "Drawn", "x", 1) for each in (Reason.HANDLER_ERROR, reason)]

    Screen().show(table_of_dead_letters(groups, 2))

    said = " ".join(capsys.readouterr().out.split())
    of_replay = reason in (Reason.NONDETERMINISTIC, Reason.REPLAY_FAILED)
    assert ("deploy the earlier handlers, redrive" in said) is of_replay


def test_a_batch_is_abandoned_and_an_old_one_is_pruned(consistent, batches):
    pruned = consistent("batches", *ON_STORE, "--prune", "1s", "--yes")
    assert (pruned.code, pruned.out) == (0, "Pruned 1 batch from the ledger of games.\n")
    assert [each["batch_id"] for each in listed(consistent)] == ["b2"]
    again = consistent("batches", *ON_STORE, "--prune", "1s", "--json")
    assert again.document == {"pruned": 0, "publications": 0}

    said = consistent("batches", *ON_STORE, "--abandon", "b2", "--yes")
    assert (said.code, "Batch b2 is abandoned" in said.out) == (0, True)
    assert [each["status"] for each in listed(consistent)] == ["abandoned"]


def test_an_abandoned_batch_with_an_outbox_says_where_its_outcomes_are(consistent, store):
    async def begin(table):
        ledger = Ledger(table, NOW)
        await ledger.begin("new", "some input", "outcomes", "outbox")
        begun = await ledger.begin("half", "some input", "outcomes", "outbox")
        await ledger.commit_round(begun, 0, {"processed": 1}, 1)

    on_store(store, begin)

    assert "run --unfinished" in consistent("batches", *ON_STORE, "--abandon", "new", "--yes").out
    said = consistent("batches", *ON_STORE, "--abandon", "half", "--yes").out.replace("\n", " ")
    assert "The outcomes of 1 committed round are in outcomes/batch_id=half: publish them from there" in said


@pytest.mark.parametrize(
    "command",
    [["batches", "--abandon", "b2"], ["batches", "--prune", "1s"], ["forget", "ShootingRange", GAME]],
    ids=" ".join,
)
def test_an_irreversible_command_needs_a_yes_and_a_dry_run_says_so(consistent, batches, command):
    before = listed(consistent)
    said, dry = consistent(*command, *ON_STORE), consistent(*command, *ON_STORE, "--dry-run")

    assert (said.code, "confirm with --yes, or try --dry-run first" in said.err) == (2, True)
    assert (dry.code, "Dry run: " in dry.out) == (0, True)
    assert listed(consistent) == before
