"""The quick contenders, with a few hundred messages: they agree, and the results hold what is promised."""

from __future__ import annotations

import json
import os
from dataclasses import replace

import pytest

from benchmarks.azurite import azurite_binary
from benchmarks.catalogue import COMPARISONS, CONTENDERS, Entry
from benchmarks.contender import DisagreementError, check
from benchmarks.document import BEGIN, END, put_into
from benchmarks.logs import open_log
from benchmarks.results import Results
from benchmarks.sizes import SIZES
from benchmarks.table import print_table
from benchmarks.turns import run

QUICK = ("consistent", "bare-fold", *(["article"] if azurite_binary() else []))
SMALL = replace(
    SIZES["default"],
    name="small",
    messages=dict.fromkeys(SIZES["default"].messages, 200),
    per_stream=20,
    runs=1,
    warm_up=0,
    duplicates=0.1,
)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Each contender is checked against the plain fold of its log: when one disagrees, this raises."""
    cache = tmp_path_factory.mktemp("benchmarks")
    with pytest.MonkeyPatch.context() as patch:
        # So little work ends before the JVM's optimising compiler and its parallel collector have paid for themselves.
        patch.setenv("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        return run(SMALL, QUICK, cores=1, in_flight=8, step=lambda _: None, cache=cache)


@pytest.mark.thorough
def test_the_quick_contenders_agree(results):
    assert set(results.measured) == set(QUICK)
    assert all(one.messages == 220 and one.seconds > 0 for [one] in results.measured.values())


@pytest.mark.thorough
def test_the_file_has_versions_cores_the_date_and_every_measurement(results, tmp_path):
    written = json.loads(results.write(tmp_path).read_text())

    assert written["begun"].startswith(f"{results.begun:%Y-%m-%d}")
    assert written["machine"]["cores_used"] == 1
    assert set(written["code"]) == {"at_the_beginning", "at_the_end"}
    assert {"pyspark", "pydantic", "pyarrow"} <= set(written["packages"])
    for name in QUICK:
        contender = written["contenders"][name]
        assert contender["durability"]
        assert len(contender["measurements"]) == SMALL.runs
    assert [ratio["one"] for ratio in written["ratios"]] == ["consistent"]
    assert written["ratios"][0]["goal"] == 0.7
    assert len(written["ratios"][0]["pairs"]) == SMALL.runs
    assert written["limits"][0]["goal"] == 85


@pytest.mark.thorough
def test_the_table_names_each_contender_and_the_goals(results, capsys):
    print_table(results)

    printed = capsys.readouterr().out
    assert all(name in printed for name in QUICK)
    assert "≥ 0.7" in printed
    assert "goal at most 85" in printed


@pytest.mark.thorough
def test_a_document_gets_the_table_between_its_marks_and_keeps_the_rest(results, tmp_path):
    document = tmp_path / "performance.md"
    document.write_text(f"# Before\n\n{BEGIN}\noutdated\n{END}\n\nAfter\n")

    put_into(document, results)
    once = document.read_text()
    put_into(document, results)

    assert document.read_text() == once
    assert once.startswith(f"# Before\n\n{BEGIN}\n")
    assert once.endswith(f"{END}\n\nAfter\n")
    assert "outdated" not in once
    assert all(f"| `{name}`" in once for name in QUICK)
    assert "| consistent / bare-fold |" in once


@pytest.mark.thorough
def test_a_document_without_marks_is_left_as_it_is(results, tmp_path):
    document = tmp_path / "performance.md"
    document.write_text("# Other\n")

    with pytest.raises(ValueError, match="lacks the lines"):
        put_into(document, results)

    assert document.read_text() == "# Other\n"


@pytest.mark.thorough
@pytest.mark.skipif(azurite_binary() is None and not os.environ.get("CI"), reason="Azurite is not installed")
def test_clients_are_compared_by_what_each_kind_of_call_takes(tmp_path):
    small = replace(SMALL, messages=dict.fromkeys(SMALL.messages, 40), duplicates=0)

    found = run(
        small, ["client-store", "client-sdk"], cores=1, in_flight=8, step=lambda _: None, cache=tmp_path
    )

    assert [ratio.comparison.name for ratio in found.ratios()] == [
        "client-sdk / client-store, cpu ms of append of 1",
        "client-sdk / client-store, cpu ms of append of 50",
        "client-sdk / client-store, cpu ms of read of 100",
        "client-sdk / client-store, cpu ms of open",
        "client-sdk / client-store, ms of open at once",
    ]
    for ratio in found.ratios():
        fact = str(ratio.comparison.fact)
        one, other = (found.measured[name][0].facts[fact] for name in ("client-store", "client-sdk"))
        assert ratio.pairs == [other / one]


def test_a_contender_that_ends_elsewhere_is_an_error(tmp_path):
    expected = open_log(40, 2, cache=tmp_path).expected()
    wrong = expected | {next(iter(expected)): "{}"}

    check(dict(expected), expected, "right")
    with pytest.raises(DisagreementError, match="1 of 2 streams"):
        check(wrong, expected, "wrong")
    with pytest.raises(DisagreementError, match="no state"):
        check({}, expected, "empty")


def test_what_is_not_installed_is_left_out_with_the_reason(monkeypatch, tmp_path):
    missing = Entry("missing", "peers.missing:Missing", "batch", modules=("no_such.package",))
    monkeypatch.setitem(CONTENDERS, "missing", missing)

    found = run(SMALL, ["missing"], cores=1, in_flight=1, step=lambda _: None, cache=tmp_path)

    assert "no_such.package is not installed" in found.left_out["missing"]
    assert not found.measured


def test_comparisons_name_contenders_that_there_are():
    assert {name for comparison in COMPARISONS for name in (comparison.one, comparison.other)} <= set(
        CONTENDERS
    )
