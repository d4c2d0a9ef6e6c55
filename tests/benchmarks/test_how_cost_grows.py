"""The series of how cost grows, as small as they can be: what is counted is right, and so is what is stored."""

from __future__ import annotations

import json
from collections import Counter
from importlib.util import find_spec

import pytest
from typer.testing import CliRunner

from benchmarks.contender import DisagreementError
from benchmarks.contenders.stored import stored_states
from benchmarks.games import by_game, by_turn, message, routed_batches
from benchmarks.growth import __main__ as command
from benchmarks.growth import pages
from benchmarks.growth.catalogue import SERIES, SIZES
from benchmarks.growth.curve import Curve, Point
from benchmarks.growth.folding import Folding, expect
from benchmarks.growth.measurement import Cost, total
from benchmarks.growth.series import Plan
from benchmarks.growth.states import page_batches
from benchmarks.growth.table import print_curve
from benchmarks.growth.turns import measure
from benchmarks.shooting import final_states
from eventstore import drive
from runtime.storage.listing import versions

PLANS = {
    "messages-per-stream": Plan((1, 10, 100), 100, turns=2),
    "streams-per-batch": Plan((1, 5), 100, turns=2),
    "history": Plan((0, 20, 600), 10, turns=2),
    "state-size": Plan((50, 40_000, 500_000), 8, turns=1),
    "duplicates": Plan((0, 50, 100), 500, turns=1),
    "small-appends": Plan((5, 10), 10, turns=2),
    "ledger": Plan((10, 3_000), 3, turns=2),
    "under-policy": Plan((40, 80), 10, turns=1),
}
QUERY_AND_TRANSACTION = 2.0


@pytest.fixture(scope="module")
def curves(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Curve]:
    """Each series checks its outcomes and the states that it ends in: when one is wrong, this raises."""
    folder = tmp_path_factory.mktemp("growth")
    return {name: measure(name, plan, folder / name) for name, plan in PLANS.items()}


def requests(curve: Curve) -> dict[int, float]:
    return {point.size: point.requests for point in curve.points}


def test_there_is_a_plan_for_each_series_at_each_size_of_a_run():
    assert all(plans.keys() == SERIES.keys() == PLANS.keys() for plans in SIZES.values())


@pytest.mark.parametrize("name", PLANS)
def test_each_size_is_timed_once_a_turn(curves, name):
    points = curves[name].points

    assert [point.size for point in points] == list(PLANS[name].sizes)
    assert all(len(point.timed) == PLANS[name].turns for point in points)
    assert all(cost.seconds > 0 for point in points for cost in point.timed)
    # Requests are counted in a turn of their own, so that counting takes no time in the others.
    assert all(cost.requests == 0 for point in points for cost in point.timed)


@pytest.mark.parametrize("name", ["messages-per-stream", "streams-per-batch", "history", "small-appends"])
def test_new_messages_take_a_query_and_a_transaction_for_each_stream_and_batch(curves, name):
    assert set(requests(curves[name]).values()) == {QUERY_AND_TRANSACTION}


def test_duplicates_in_runs_take_a_query_more_and_no_transaction_where_nothing_is_new(curves):
    assert requests(curves["duplicates"]) == {0: 2, 50: 3, 100: 2}


def test_a_state_too_large_for_the_header_takes_a_query_more_and_one_over_the_limit_is_refused(curves):
    curve = curves["state-size"]

    assert requests(curve) == {50: 2, 40_000: 3, 500_000: 2}
    assert [point.refused for point in curve.points] == [None, None, "state_too_large"]
    assert curve.points[-1].counted.outcomes == {"state_too_large": 8}


def test_messages_and_streams_are_what_the_sizes_say(curves):
    def counted(name):
        return [(point.counted.messages, point.counted.visits) for point in curves[name].points]

    assert counted("messages-per-stream") == [(100, 100), (100, 10), (100, 1)]
    assert counted("streams-per-batch") == [(100, 10), (100, 10)]
    assert counted("history") == [(10, 1)] * 3
    assert counted("small-appends") == [(25, 5), (30, 5)]


def test_a_longer_history_is_more_to_read(curves):
    read = [point.bytes_read for point in curves["history"].points]

    assert read[0] == 0
    assert 0 < read[1] < read[2]


def test_small_appends_tell_what_the_stream_is(curves):
    last = curves["small-appends"].points[-1]

    assert last.fact("rows") == 1
    assert last.fact("bytes_per_message") > 0
    assert last.fact("read_microseconds") > 0


def test_a_batch_asks_the_ledger_the_same_however_many_ended(curves):
    points = curves["ledger"].points

    assert requests(curves["ledger"]) == {10: 13, 3_000: 13}
    assert [point.counted.messages for point in points] == [3, 3]
    few, many = (point.bytes_read for point in points)
    assert 0 < few <= many < few + 100
    few, many = (point.fact("memory_bytes") for point in points)
    assert 0 < many < 2 * few


def test_a_stream_under_a_policy_stops_growing(curves):
    after, later = curves["under-policy"].points

    assert (after.fact("versions"), later.fact("versions")) == (310, 310)
    assert later.fact("stored_bytes") < 1.1 * after.fact("stored_bytes")
    assert requests(curves["under-policy"]) == {40: 2, 80: 2}


def test_the_states_are_those_of_a_plain_fold(tmp_path):
    folding = Folding(tmp_path / "store.db", counted=True)
    first = list(routed_batches(by_game(range(3), range(4))))
    more = list(routed_batches(by_game(range(3), range(4, 9))))

    costs = [folding.fold(first), folding.fold(more)]

    assert total(costs).outcomes == {"processed": 27}
    assert total(costs).requests == 2 * 3 * QUERY_AND_TRANSACTION
    expected = final_states(message(game, turn) for game, turn in by_turn(range(3), range(9)))
    assert stored_states(f"sqlite:///{tmp_path}/store.db") == expected
    folding.check([*first, *more])
    with pytest.raises(DisagreementError):
        folding.check(first)


def test_a_message_changes_twenty_characters_of_a_page(tmp_path):
    folding = Folding(tmp_path / "store.db", pages.app, counted=False)
    folding.fold(page_batches(1_000, range(3)))

    kept = drive(versions(folding.connection.table, "Pages", "page-0")) or []
    texts = [version.after.decode() for version in kept]
    assert [len(text) for text in texts] == [1_000] * 3
    changed = [
        sum(one != other for one, other in zip(texts[number], texts[number + 1], strict=True))
        for number in (0, 1)
    ]
    assert all(10 < count <= 20 for count in changed)


def test_a_message_can_be_made_again_and_its_game_is_one_of_the_sample():
    game = [message(7, turn) for turn in range(8)]

    assert game == [message(7, turn) for turn in range(8)]
    assert [each.type for each in game] == 2 * ["StartNewRound", "FireAt", "FireAt", "FireAt"]
    assert len({each.message_id for each in game + [message(8, turn) for turn in range(8)]}) == 16


def test_about_half_of_the_shots_are_aimed():
    def position(game, turn):
        return json.loads(message(game, turn).body)["position"]

    aimed = sum(position(game, 0) == position(game, 1) for game in range(200))
    assert 60 < aimed < 140


def test_other_outcomes_than_expected_are_an_error(tmp_path):
    folding = Folding(tmp_path / "store.db", counted=False)
    messages = list(routed_batches(by_game([0], range(4))))
    folding.fold(messages)

    with pytest.raises(DisagreementError, match="duplicate"):
        expect(folding.fold(messages), Counter(processed=4))


def costing(*microseconds: float, outcome: str = "processed") -> list[Cost]:
    return [Cost(each * 10 / 1e6, 10, 1, {outcome: 10}) for each in microseconds]


def point(size: int, work: float, *microseconds: float, outcome: str = "processed") -> Point:
    counted, *timed = costing(1, *microseconds, outcome=outcome)
    return Point(size, work, counted, timed)


def test_the_verdict_compares_a_unit_of_work_at_the_largest_size_with_the_smallest():
    flat = Curve("a", "A", "b", 1.5, [point(1, 1, 10, 30, 20), point(5, 1, 99), point(9, 1, 28, 1, 50)])
    grown = Curve("a", "A", "b", 1.5, [point(1, 1, 10), point(9, 1, 16)])
    by_work = Curve("a", "A", "b", 1.0, [point(10, 10, 100), point(1_000, 1_000, 9_000)])

    assert flat.verdict.ratio == pytest.approx(1.4)
    assert flat.verdict.is_met
    assert not grown.verdict.is_met
    assert by_work.verdict.ratio == pytest.approx(0.9)
    assert by_work.verdict.is_met


def test_sizes_at_which_nothing_was_stored_take_no_part_in_the_verdict():
    refused = point(9, 1, 1_000, outcome="state_too_large")

    assert Curve("a", "A", "b", 1.5, [point(1, 1, 10), point(5, 1, 11), refused]).verdict.is_met


def test_the_table_has_each_size_and_says_what_was_refused(curves, capsys):
    for curve in curves.values():
        print_curve(curve)

    printed = capsys.readouterr().out
    assert all(curve.title in printed for curve in curves.values())
    assert "500,000: nothing is stored, each message is a dead letter, state_too_large." in printed
    assert printed.count("goal at most") == len(PLANS)


@pytest.mark.thorough
def test_the_command_writes_results_and_plots(tmp_path, monkeypatch):
    tiny = {"messages-per-stream": PLANS["messages-per-stream"], "small-appends": PLANS["small-appends"]}
    monkeypatch.setitem(SIZES, "tiny", tiny)
    folders = ["--results", str(tmp_path / "results"), "--plots", str(tmp_path / "plots")]

    done = CliRunner().invoke(command.cli, ["--size", "tiny", "--turns", "1", *folders])

    assert done.exit_code == 0, done.output
    (file,) = (tmp_path / "results").glob("????-??-??-growth-tiny.json")
    written = json.loads(file.read_text())
    assert written["series"].keys() == tiny.keys()
    for series in written["series"].values():
        assert [set(each["outcomes"]) for each in series["points"]] == [{"processed"}] * len(series["points"])
        assert all(len(each["microseconds"]) == 1 for each in series["points"])
        assert set(series["largest_to_smallest"]) == {"ratio", "most", "is_met"}
    drawn = {file.name: file.read_bytes() for file in (tmp_path / "plots").glob("*")}
    if find_spec("matplotlib") is None:
        assert "matplotlib is not installed" in done.output
        assert not drawn
    else:
        assert drawn.keys() == {f"{name}.png" for name in tiny}
        assert all(file.startswith(b"\x89PNG") for file in drawn.values())


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--size", "huge"], "huge is none of default, full"),
        (["--only", "nothing"], "There is no series nothing"),
    ],
)
def test_what_there_is_not_is_wrong_usage(options, sentence):
    done = CliRunner().invoke(command.cli, options, env={"COLUMNS": "200"})

    assert done.exit_code == 2
    assert sentence in done.output
