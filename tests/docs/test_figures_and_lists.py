"""Figures and lists of the pages are those of the code: each sentence is built from the constants and looked for."""

from __future__ import annotations

import re

import pytest

from eventstore.keys import MAX_KEY_UNITS
from eventstore.limits import MAX_OPERATIONS, MAX_TRANSACTION_BYTES
from runtime.algorithms.outbox.entity import MAX_OUTBOX_BYTES
from runtime.algorithms.state_based.decide import FUTURE_TOLERANCE
from runtime.algorithms.state_based.truncation import MINIMUM_AGE
from runtime.algorithms.state_based.verification import Verdict
from runtime.batch_options import STORE_VARIABLE, TABLE_VARIABLE
from runtime.cli import failures
from runtime.cli.options import DEFAULT_MASTER
from runtime.ledger.ledger import BatchStatus
from runtime.messages.outcome import Reason, Status
from runtime.spark.session import with_retries
from runtime.spark.worker.connection import MAX_BUFFERED_BYTES
from runtime.spark.worker.job import DELIVERY_BYTES, HARD_LIMIT, MAX_DELIVERIES, MAX_TEXT_BYTES
from runtime.spark.worker.outcomes import MAX_BYTES, MAX_ROWS
from runtime.versions import limits
from tests.docs.pages import text

HOUR = 3600 * 1_000_000


def kib(size: int) -> str:
    return f"{size // limits.KIB} KiB"


def mib(size: int) -> str:
    return f"{size // limits.MIB} MiB"


SENTENCES = [
    ("architecture", f"for a state over {kib(limits.MAX_HEAD_STATE_BYTES)}, which does not fit the header"),
    ("architecture", f"larger than {kib(limits.MAX_TAIL_BYTES)}, the tail becomes a run"),
    ("architecture", f"A commit of more than {limits.MAX_SEGMENT_VERSIONS} versions"),
    ("architecture", f"up to {limits.MAX_RUN_VERSIONS:,} consecutive versions in one row"),
    ("architecture", f"up to {limits.MAX_INDEX_HASHES:,} hashes in a row"),
    ("operations", f"take more than {MAX_KEY_UNITS} characters as a key"),
    ("operations", f"the version would take more than {kib(limits.MAX_STATE_BYTES)}"),
    ("operations", f"at least {MINIMUM_AGE // HOUR} h unless `--allow-young` is given"),
    ("operations", f"the cut-off is {MINIMUM_AGE // HOUR} h ago"),
    ("operations", {HOUR: "is more than an hour ahead of the clock"}[FUTURE_TOLERANCE]),
    ("operations", f"The default master is `{DEFAULT_MASTER}`: all cores, four attempts for each task"),
    ("operations", f"is taken as `{with_retries('local[7]').replace('7', 'N')}`"),
    ("operations", f"from `{STORE_VARIABLE}` and the table from `{TABLE_VARIABLE}`"),
    ("performance", f"up to {MAX_OPERATIONS} rows and {MAX_TRANSACTION_BYTES // limits.MIB} MiB"),
    ("performance", f"up to {MAX_DELIVERIES:,} of them or {mib(MAX_TEXT_BYTES)} of bodies and headers"),
    ("performance", {2: "may extend it, to twice that"}[HARD_LIMIT]),
    ("performance", f"up to {mib(MAX_BUFFERED_BYTES)} together"),
    ("performance", f"{kib(DELIVERY_BYTES)} for the objects of each delivery"),
    ("performance", f"in pieces of {MAX_ROWS:,}, or of {mib(MAX_BYTES)} with their bodies"),
    ("growth", f"more than {MAX_DELIVERIES:,} messages in one batch"),
    ("growth", f"with the tail, up to {kib(limits.MAX_TAIL_BYTES)}"),
    ("growth", f"A state over {kib(limits.MAX_HEAD_STATE_BYTES)} does not fit the header"),
    ("growth", f"Over {kib(limits.MAX_STATE_BYTES)} no version is stored"),
    (
        "decisions/0001-runs",
        f"up to {limits.MAX_RUN_VERSIONS:,} versions and {limits.MAX_RUN_RAW_BYTES // limits.MIB} MiB",
    ),
    ("decisions/0001-runs", f"exceed {kib(limits.MAX_RUN_DATA_BYTES)} is split"),
    ("decisions/0009-tail-and-index", f"until they take {kib(limits.MAX_TAIL_BYTES)}"),
    ("decisions/0013-two-passes", f"must fit its outbox, {kib(MAX_OUTBOX_BYTES)}"),
]


@pytest.mark.parametrize(("page", "sentence"), SENTENCES)
def test_its_figure_is_that_of_the_code(page, sentence):
    assert sentence in " ".join(text(f"docs/{page}.md").split())


def first_column(heading: str) -> list[str]:
    """Return the first column of a table on the page about operations, without backticks."""
    table = text("docs/operations.md").partition(f"\n| {heading} |")[2].partition("\n\n")[0]
    return re.findall(r"^\| `?(\w+)`? \|", table, re.MULTILINE)


@pytest.mark.parametrize(
    ("heading", "codes"),
    [
        ("status", [status.value for status in Status]),
        ("reason", [reason.value for reason in Reason]),
        ("verdict", [verdict.value for verdict in Verdict]),
        (
            "exit code",
            [
                str(code)
                for code in (
                    0,
                    failures.FAILED,
                    failures.WRONG_USAGE,
                    failures.TOO_MANY_DEAD_LETTERS,
                    failures.INTERRUPTED,
                    failures.TERMINATED,
                )
            ],
        ),
    ],
)
def test_its_table_lists_all_there_are(heading, codes):
    assert first_column(heading) == codes


def test_its_verdicts_have_the_exit_codes_that_it_says():
    said = dict(re.findall(r"^\| `(\w+)` \|.*\| (\d) \|$", text("docs/operations.md"), re.MULTILINE))

    assert said == {verdict.value: str(int(verdict.is_difference)) for verdict in Verdict}


def test_the_life_of_a_batch_has_every_status():
    drawing = text("docs/operations.md").partition("stateDiagram-v2")[2].partition("```")[0]

    assert set(re.findall(r"[a-z]+(?= -->)|(?<=--> )[a-z]+", drawing)) == {
        status.value for status in BatchStatus
    }
