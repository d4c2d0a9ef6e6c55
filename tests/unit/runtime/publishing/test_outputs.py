"""The outputs of a batch are cut into slices: each output once, those of a business object together and in order."""

import pytest

from runtime.errors import BatchRefusedError, OutcomesMissingError
from runtime.publishing.outputs import BatchOutputs, cut, slice_of
from tests.support.done_batches import games, make_batch, outcome, output


@pytest.fixture
def outputs_of(tmp_path):
    """Make a batch of some rounds, and return its outputs."""

    def made(rounds, types=None):
        record = make_batch(f"sqlite:///{tmp_path}/store.db", tmp_path / "out", rounds)
        return BatchOutputs.of(record, str(tmp_path / "out"), types)

    return made


@pytest.fixture
def epoch(tmp_path):
    """Make an epoch of a stream."""
    out = tmp_path / "out" / "_epochs"
    store = f"sqlite:///{tmp_path}/store.db"
    return make_batch(store, out, games(2, 4), batch_id="shots-1", input_="epoch 1")


def slices(found, count):
    with cut(found.tables(), count) as parts:
        return [list(parts.outputs(number)) for number in range(count)]


def test_each_output_is_in_the_slice_of_its_business_object_and_in_the_order_of_versions(outputs_of):
    found = outputs_of(games(20, 12))

    parts = slices(found, 4)

    assert sum(map(len, parts)) == 240
    assert slices(found, 4) == parts
    for number, outputs in enumerate(parts):
        assert {slice_of(each.business_id, 4) for each in outputs} == {number}
        order = [(each.business_id, each.sequence) for each in outputs]
        assert order == sorted(order)


def test_types_may_be_chosen(outputs_of):
    parts = slices(outputs_of(games(3, 6), ["Missed"]), 2)

    assert {each.type for outputs in parts for each in outputs} == {"Missed"}
    assert sum(map(len, parts)) == 6


def test_a_batch_without_outputs_has_empty_slices(outputs_of):
    found = outputs_of([[outcome("g")]])

    assert found.default_slices() == 1
    assert slices(found, 1) == [[]]


def test_an_output_that_two_outcomes_have_is_there_once(outputs_of):
    twice = [outcome("g", output("a", 1)), outcome("g", output("a", 1), output("b", 2))]

    (only,) = slices(outputs_of([twice]), 1)

    assert [each.message_id for each in only] == ["a", "b"]
    assert only[0].headers == {"trace": "a"}


def test_floats_that_json_has_no_form_for_are_strings_and_all_else_stays_to_the_byte(outputs_of):
    text = r'"NaN": [%s, 1.10, "\"NaN", "-Infinity", "\\", %s, {"Infinity\u0000": %s}], "x": 1e400'
    body = "{" + text % ("NaN", "-Infinity", "Infinity") + "}"

    ((only,),) = slices(outputs_of([[outcome("g", output("a", 1, body=body))]]), 1)

    assert only.body == "{" + text % ('"NaN"', '"-Infinity"', '"Infinity"') + "}"


EPOCH = "batch_id=shots-1"


@pytest.mark.parametrize("named", ["", "/_epochs"], ids=["by its OUT", "as the ledger has it"])
@pytest.mark.parametrize("moved", [False, True], ids=["it waits", "readers see it"])
def test_an_epoch_is_found_where_it_is_moved(epoch, tmp_path, named, moved):
    out = tmp_path / "out"
    assert (epoch.out, epoch.shown_in) == (f"{out}/_epochs", str(out))
    if moved:
        (out / "_epochs" / EPOCH).rename(out / EPOCH)

    assert sum(map(len, slices(BatchOutputs.of(epoch, f"{out}{named}"), 2))) == 8


@pytest.mark.parametrize(
    ("left", "error"),
    [
        ("batch_id=shots-0..1", BatchRefusedError),
        ("batch_id=shots-1..1", BatchRefusedError),
        ("batch_id=shots-2..9", OutcomesMissingError),
        ("batch_id=other-0..9", OutcomesMissingError),
        ("batch_id=shots-12", OutcomesMissingError),
    ],
)
def test_an_epoch_that_was_merged_is_told_from_one_that_is_gone(epoch, tmp_path, left, error):
    (tmp_path / "out" / "_epochs" / EPOCH).rename(tmp_path / "out" / left)

    with pytest.raises(error):
        BatchOutputs.of(epoch, epoch.out)


def test_a_batch_that_has_not_ended_or_misses_a_file_is_refused(tmp_path):
    store, out = f"sqlite:///{tmp_path}/store.db", tmp_path / "out"
    with pytest.raises(BatchRefusedError, match="only a complete batch"):
        BatchOutputs.of(make_batch(store, out, games(2, 2), ends=False), str(out))

    record = make_batch(store, out, games(2, 2), batch_id="b2")
    next((out / "batch_id=b2").rglob("part-1.parquet")).unlink()
    with pytest.raises(OutcomesMissingError):
        BatchOutputs.of(record, str(out))
