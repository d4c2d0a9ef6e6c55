"""Figures, lists, quotations and pictures of the pages are those of the code."""

import re
import shlex
import tomllib
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import NAMESPACE_OID, UUID, uuid5

import pytest
from packaging.requirements import Requirement
from typer.testing import CliRunner

from benchmarks.algorithms.__main__ import PARTS, cli
from benchmarks.algorithms.costs import AGAIN, HISTORY, NEW
from benchmarks.marks import put_parts
from benchmarks.side_effects.__main__ import COLUMNS
from benchmarks.side_effects.counting import drivers
from eventstore import Int64
from eventstore.keys import MAX_KEY_UNITS
from eventstore.limits import MAX_OPERATIONS, MAX_TRANSACTION_BYTES, row_bytes
from eventstore.port import Row
from handlers.context import MAX_BYTES, MAX_DOCUMENTS
from handlers.lint import RULES
from runtime import Envelope
from runtime.algorithms.outbox.entity import MAX_OUTBOX_BYTES
from runtime.algorithms.state_based.decide import FUTURE_TOLERANCE
from runtime.algorithms.state_based.replay import Verdict
from runtime.algorithms.state_based.truncation import MINIMUM_AGE
from runtime.batch_options import STORE_VARIABLE, TABLE_VARIABLE
from runtime.cli import failures, main
from runtime.cli.options import DEFAULT_MASTER
from runtime.ledger.ledger import BatchStatus
from runtime.messages.outcome import Reason, Status
from runtime.messages.sizes import KIB, MIB
from runtime.publishing import DeliverySettings
from runtime.spark.scan import _OPTIONS
from runtime.spark.start import with_retries
from runtime.spark.worker.job import MAX_BUFFERED_BYTES, MAX_DELIVERIES, MAX_TEXT_BYTES
from runtime.tables.streams import _READ_ONE_BY_ONE
from runtime.versions import limits
from scripts.pictures import FOLDER, PICTURES
from scripts.reference.pages import PAGES as REFERENCE
from tests.docs.pages import PAGES, ROOT, links, text
from tests.packaging.building import PROJECT, extras, required, setup_cfg
from tests.unit.handlers.lint.corpus_check import handlers, marks
from tests.unit.runtime.algorithms.batches import Batch
from tests.unit.runtime.algorithms.world import ALGORITHMS, World

HOUR = 3600 * 1_000_000
DELIVERY, DOCUMENT_BYTES = DeliverySettings(), limits.MAX_TRANSACTION_DOCUMENT_BYTES


def kib(size: int) -> str:
    return f"{size // KIB} KiB"


def mib(size: int) -> str:
    return f"{size // MIB} MiB"


SENTENCES = [
    ("architecture", f"for a state over {kib(limits.MAX_HEAD_STATE_BYTES)}, which does not fit the header"),
    ("architecture", f"larger than {kib(limits.MAX_TAIL_BYTES)}, the tail becomes a run"),
    ("architecture", f"A commit of more than {limits.MAX_SEGMENT_VERSIONS} versions"),
    ("architecture", f"up to {limits.MAX_RUN_VERSIONS:,} consecutive versions in one row"),
    ("architecture", f"up to {limits.MAX_INDEX_HASHES:,} hashes in a row"),
    ("statuses", f"take more than {MAX_KEY_UNITS} characters as a key"),
    ("statuses", f"The version would take more than {kib(limits.MAX_STATE_BYTES)}"),
    ("statuses", {HOUR: "is more than an hour ahead of the clock"}[FUTURE_TOLERANCE]),
    ("limits", f"A state is limited to {kib(limits.MAX_STATE_BYTES)}"),
    ("truncation", f"at least {MINIMUM_AGE // HOUR} h unless `--allow-young` is given"),
    ("truncation", f"the cut-off is {MINIMUM_AGE // HOUR} h ago"),
    ("cli", f"`{DEFAULT_MASTER}`"),
    ("cli", f"`{with_retries('local[7]').replace('7', 'N')}`"),
    ("cli", f"`{STORE_VARIABLE}`"),
    ("cli", f"`{TABLE_VARIABLE}`"),
    ("performance", f"up to {MAX_OPERATIONS} rows and {MAX_TRANSACTION_BYTES // MIB} MiB"),
    ("performance", f"up to {MAX_DELIVERIES:,} of them or {mib(MAX_TEXT_BYTES)} of bodies and headers"),
    ("performance", f"up to {mib(MAX_BUFFERED_BYTES)} together"),
    ("growth", f"A state over {kib(limits.MAX_HEAD_STATE_BYTES)} does not fit the header"),
    ("growth", f"Over {kib(limits.MAX_STATE_BYTES)} the message is a dead letter"),
    ("decisions/0001-runs", f"up to {limits.MAX_RUN_VERSIONS:,} versions and {mib(limits.MAX_RUN_RAW_BYTES)}"),
    ("decisions/0001-runs", f"exceed {kib(limits.MAX_RUN_DATA_BYTES)} is split"),
    ("decisions/0009-tail-and-index", f"until they take {kib(limits.MAX_TAIL_BYTES)}"),
    ("decisions/0013-two-passes", f"must fit its outbox, {kib(MAX_OUTBOX_BYTES)}"),
    ("algorithms", f"{kib(limits.MAX_STATE_BYTES)}, and {kib(MAX_OUTBOX_BYTES)} for all entries of an entity"),
    ("algorithms", f"When they take more than {kib(MAX_OUTBOX_BYTES)}"),
    ("algorithms", f"The tail holds the newest versions, up to {kib(limits.MAX_TAIL_BYTES)}"),
    ("algorithms", f"at least {HISTORY.stop + len(NEW) - AGAIN} newer ones in its game"),
    ("algorithms", {timedelta(minutes=2): "A lock expires after two minutes"}[DELIVERY.lock_limit]),
    *[("algorithms", f"| `{algorithm}` |") for algorithm in ALGORITHMS],
    ("publishing-functions", f"| {DELIVERY.lock_limit // timedelta(milliseconds=1)} |"),
    ("publishing-functions", f"| {DELIVERY.default_ttl // timedelta(seconds=1)} |"),
    ("tables", f"for more than {_READ_ONE_BY_ONE} of 1,000"),
    ("side-effects", f"until it has {limits.MAX_TRANSACTION_DOCUMENTS} documents or {mib(DOCUMENT_BYTES)}"),
    ("side-effects", f"has up to {MAX_DOCUMENTS} documents of up to {mib(MAX_BYTES)} together"),
    ("installation", "installs pydantic, msgpack, msgspec and zstandard"),
]  # fmt: skip


@pytest.mark.parametrize(("page", "sentence"), SENTENCES)
def test_its_figure_is_that_of_the_code(page, sentence):
    assert sentence in " ".join(text(f"docs/{page}.md").split())


def test_pictures_are_as_the_script_draws_them_and_each_is_shown_on_a_page():
    drawn = {name: picture.svg() for name, picture in PICTURES.items()}
    assert {file.stem: file.read_text() for file in FOLDER.glob("*.svg")} == drawn

    shown = {link.rpartition("/")[2] for page in PAGES for link in links(page) if "pictures/" in link}
    assert shown == {file.name for file in FOLDER.iterdir()}


def test_the_handler_of_side_effects_is_that_of_the_sample_and_its_table_tells_of_no_loss():
    page = text("docs/side-effects.md")
    (shown,) = re.findall(r"```python\n(@handles.*?)```", page, re.DOTALL)
    lines = {line.strip() for line in text("samples/invoices.py").splitlines()}
    assert {line.strip() for line in shown.splitlines()} <= lines

    rows = [row.strip("| ").split(" | ")[1:] for row in re.findall(r"^\| one .*\|$", page, re.MULTILINE)]
    counts = [dict(zip(COLUMNS, row, strict=True)) for row in rows]
    assert len(counts) == 4
    assert sum(int(each["kills"]) for each in counts) >= 200
    assert {each[name] for each in counts for name in COLUMNS[-3:]} == {"0"}


@pytest.mark.thorough
@pytest.mark.timeout(1200)
def test_a_batch_whose_drivers_are_killed_leaves_nothing_wrong_either():
    counts = drivers(["committing 2", "Round 0: recording in the ledger"])

    assert counts.is_right
    assert (counts.kills, counts.announced) == (2, counts.orders)
    assert counts.swept > 0


def first_column(page: str, heading: str) -> list[str]:
    """Return the first column of a table on a page, without backticks."""
    table = text(f"docs/{page}.md").partition(f"\n| {heading} |")[2].partition("\n\n")[0]
    return re.findall(r"^\| `?(\w+)`? \|", table, re.MULTILINE)


EXIT_CODES = (0, failures.FAILED, failures.WRONG_USAGE, failures.TOO_MANY_DEAD_LETTERS, failures.INTERRUPTED,
              failures.TERMINATED)  # fmt: skip


@pytest.mark.parametrize(
    ("page", "heading", "codes"),
    [
        ("statuses", "status", Status),
        ("statuses", "reason", Reason),
        ("verifying", "verdict", Verdict),
        ("cli", "exit code", EXIT_CODES),
    ],
)
def test_its_table_lists_all_there_are(page, heading, codes):
    assert first_column(page, heading) == [str(getattr(code, "value", code)) for code in codes]


def test_its_verdicts_have_the_exit_codes_that_it_says():
    said = dict(re.findall(r"^\| `(\w+)` \|.*\| (\d) \|$", text("docs/verifying.md"), re.MULTILINE))

    assert said == {verdict.value: str(int(verdict.is_difference)) for verdict in Verdict}


def test_the_life_of_a_batch_has_every_status():
    drawn = set(re.findall(r'class="bold.*>([a-z]+)<', text("docs/pictures/batch.svg")))

    assert drawn == {"begin", *(status.value for status in BatchStatus)}


@pytest.mark.parametrize(
    ("kind", "value", "size"),
    [
        ("text", "abc", 4 + 2 * 3),
        ("binary", b"abc", 4 + 3),
        *[
            ("int64, double, datetime", value, 8)
            for value in (Int64(1), 1.5, datetime(2026, 1, 1, tzinfo=UTC))
        ],
        ("int32", 1, 4),
        ("guid", UUID(int=1), 16),
        ("boolean", True, 1),
    ],
)
def test_bytes_are_counted_as_the_page_on_storage_says(kind: str, value: Any, size: int):
    (said,) = re.findall(rf"^\| {kind} \| (\d+)", text("docs/storage.md"), re.MULTILINE)

    assert said in {"4", str(size)}
    # 4, two keys of one character, 8 for the property and two for its name
    assert row_bytes(Row("p", "r", "", {"N": value})) == 4 + 2 * 2 + 8 + 2 + size


ALGORITHMS_PAGE = text("docs/algorithms.md")


@pytest.mark.parametrize(
    ("algorithm", "sentence"),
    [
        ("outbox", "512 KiB, about {:,} messages with a small output each"),
        pytest.param("tokens", "each, {:,} with tokens.", marks=pytest.mark.thorough),
    ],
)
def test_as_many_messages_fit_a_round_as_it_says(algorithm, sentence):
    game = "7d444840-9dc0-11d1-b245-5ffdce74fad2"
    world = World(algorithm)
    shots = [
        Envelope.of(f"{uuid5(NAMESPACE_OID, str(n))}", "FireAt", f'{{"game_id": "{game}", "position": 1}}')
        for n in range(2500)
    ]

    outcomes = Batch(world, "20260101T000000-abc123").first_pass(*shots)

    fitting = sum(outcome.status == "processed" for outcome in outcomes)
    assert sentence.format(round(fitting, -2)) in " ".join(ALGORITHMS_PAGE.split())


@pytest.mark.thorough
def test_its_tables_are_those_that_the_command_writes(tmp_path):
    # Given the page without its tables
    page = tmp_path / "algorithms.md"
    page.write_text(ALGORITHMS_PAGE)
    put_parts(page, dict.fromkeys(PARTS, "to be measured\n"))
    assert page.read_text().count("to be measured") == len(PARTS)

    done = CliRunner().invoke(cli, ["--document", str(page)])

    assert done.exit_code == 0, done.output
    assert page.read_text() == ALGORITHMS_PAGE, "`python -m benchmarks algorithms` writes the page anew"


def test_all_options_of_tables_are_told():
    told = set(re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", text("docs/tables.md"), re.MULTILINE))
    named = {name for names in told for name in re.findall(r"\w+", names)}

    known = {name for options in _OPTIONS.values() for name in options}
    assert named & known == known - {"store", "table"}


INSTALLATION = text("docs/installation.md")
ROW = re.compile(r"^\| .* \| `consistent-messaging\[(\w+)\]` \| (.*) \|$", re.MULTILINE)


@pytest.mark.parametrize("page", PAGES)
def test_each_extra_that_a_page_names_exists(page):
    named = re.findall(rf"{PROJECT}\[([\w,]+)\]", text(page))

    assert {extra for names in named for extra in names.split(",")} <= set(extras())


@pytest.mark.parametrize(("extra", "brings"), ROW.findall(INSTALLATION))
def test_what_an_extra_adds_is_told(extra, brings):
    names = {each.name for each in required(extra)} - {
        PROJECT,
        "azure-core",
    }  # which azure-data-tables brings
    included = {name for each in required(extra) if each.name == PROJECT for name in each.extras}

    told = brings.lower()
    assert all(name in told for name in names)
    assert all(f"`{name}`" in told for name in included)


def test_each_extra_is_told_and_the_project_file_that_is_shown_allows_this_version():
    assert {extra for extra, _ in ROW.findall(INSTALLATION)} == set(extras())

    (shown,) = re.findall(r"```toml\n(.*?)```", INSTALLATION, re.DOTALL)
    (dependency,) = tomllib.loads(shown)["project"]["dependencies"]
    assert Requirement(dependency).specifier.contains(setup_cfg()["metadata"]["version"])


DETERMINISM = text("docs/determinism.md")


def counted(kind: str, folder: str) -> int:
    return len(marks(folder, kind))


def test_every_rule_of_the_linter_is_in_a_group_of_the_page_and_in_the_reference():
    groups = re.findall(r"^\| CM(\d)(\d\d)(?: to |, )CM\1(\d\d) \|", DETERMINISM, re.MULTILINE)
    grouped = [f"CM{group}{n:02}" for group, first, last in groups for n in range(int(first), int(last) + 1)]
    assert grouped == list(RULES)

    page = REFERENCE["handlers.md"]()
    for rule in RULES.values():
        assert f"| {rule.code} | {rule.name} | {rule.why} | {rule.instead} |" in page


def test_figures_of_the_linter_are_those_of_the_corpus():
    found, missed = counted("expect", "bad"), counted("miss", "bad")
    also_found, also_missed = counted("expect", "unseen"), counted("miss", "unseen")
    of_all, also_of_all = found + missed, also_found + also_missed
    shares = f"{found} ({found / of_all:.0%}) | {also_found} ({also_found / also_of_all:.0%})"

    for row in (
        f"| handlers | {len(handlers('bad'))} bad, {len(handlers('good'))} good | {len(handlers('unseen'))} |",
        f"| mistakes in them | {of_all} | {also_of_all} |",
        f"| found, at their line and with their code | {shares} |",
        f"| false alarms | {counted('false', 'good')} | {counted('false', 'unseen')} |",
    ):
        assert row in DETERMINISM


def test_the_hook_of_the_linter_is_there_and_calls_the_command():
    hooks = text(".pre-commit-hooks.yaml")
    assert re.search(r"^- id: consistent-lint$", hooks, re.MULTILINE)
    assert "- id: consistent-lint" in DETERMINISM
    (entry,) = re.findall(r"^  entry: consistent (.*)$", hooks, re.MULTILINE)
    with pytest.raises(SystemExit) as ended:
        main([*shlex.split(entry), str(ROOT / "samples/shooting_range/handlers.py")])
    assert ended.value.code == 0


THREATS = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in text("SECURITY.md").partition("## Threats")[2].partition("\n## ")[0].splitlines()
    if line.startswith("| ")
][1:]


@pytest.mark.parametrize(("threat", "promise", "held_by"), [row[:3] for row in THREATS])
def test_each_promise_names_tests_that_hold_it(threat, promise, held_by):
    assert len(THREATS) > 10
    assert promise, "a threat without a promise belongs into the last column of another"
    paths = re.findall(r"\[[^]]+\]\(([^)]+)\)", held_by)
    assert paths, f"no test holds: {promise}"
    for path in paths:
        assert path.startswith("tests/")
        assert re.search(r"^(async )?def test_", text(path), re.MULTILINE), path
