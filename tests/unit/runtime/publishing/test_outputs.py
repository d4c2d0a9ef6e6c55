"""The outputs of a batch are cut into slices: each output once, those of a business object together and in order."""

import pytest

from runtime.errors import BatchRefusedError, OutcomesMissingError
from runtime.publishing.outputs import BatchOutputs, cut, slice_of
from tests.support.done_batches import games, make_batch, outcome, output


@pytest.fixture
def store(tmp_path):
    return f"sqlite:///{tmp_path}/store.db"


def slices(found, count):
    with cut(found.tables(), count) as parts:
        return [list(parts.outputs(number)) for number in range(count)]


def test_each_output_is_in_the_slice_of_its_business_object_and_in_the_order_of_versions(store, tmp_path):
    record = make_batch(store, tmp_path / "out", games(20, 10))

    cut = slices(BatchOutputs.of(record, str(tmp_path / "out")), 4)

    assert sum(map(len, cut)) == 200
    for number, outputs in enumerate(cut):
        assert {slice_of(each.business_id, 4) for each in outputs} == {number}
        order = [(each.business_id, each.sequence) for each in outputs]
        assert order == sorted(order)


def test_a_slice_is_the_same_whenever_it_is_read(store, tmp_path):
    record = make_batch(store, tmp_path / "out", games(5, 4))
    found = BatchOutputs.of(record, str(tmp_path / "out"))

    assert slices(found, 3) == slices(found, 3)


def test_an_output_that_two_outcomes_have_is_there_once(store, tmp_path):
    twice = [outcome("g", output("a", 1)), outcome("g", output("a", 1), output("b", 2))]
    record = make_batch(store, tmp_path / "out", [twice])

    (only,) = slices(BatchOutputs.of(record, str(tmp_path / "out")), 1)

    assert [each.message_id for each in only] == ["a", "b"]
    assert only[0].headers == {"trace": "a"}


def test_floats_that_json_has_no_form_for_are_strings_and_all_else_stays_to_the_byte(store, tmp_path):
    text = r'"NaN": [%s, 1.10, "\"NaN", "-Infinity", "\\", %s, {"Infinity\u0000": %s}], "x": 1e400'
    body = "{" + text % ("NaN", "-Infinity", "Infinity") + "}"
    record = make_batch(store, tmp_path / "out", [[outcome("g", output("a", 1, body=body))]])

    ((only,),) = slices(BatchOutputs.of(record, str(tmp_path / "out")), 1)

    assert only.body == "{" + text % ('"NaN"', '"-Infinity"', '"Infinity"') + "}"


def test_types_may_be_chosen(store, tmp_path):
    record = make_batch(store, tmp_path / "out", games(3, 6))

    cut = slices(BatchOutputs.of(record, str(tmp_path / "out"), ["Missed"]), 2)

    assert {each.type for outputs in cut for each in outputs} == {"Missed"}
    assert sum(map(len, cut)) == 6


def test_a_batch_without_outputs_has_empty_slices(store, tmp_path):
    record = make_batch(store, tmp_path / "out", [[outcome("g")]])
    found = BatchOutputs.of(record, str(tmp_path / "out"))

    assert found.default_slices() == 1
    assert slices(found, 1) == [[]]


def test_a_batch_that_has_not_ended_is_refused(store, tmp_path):
    record = make_batch(store, tmp_path / "out", games(2, 2), ends=False)

    with pytest.raises(BatchRefusedError, match="not done"):
        BatchOutputs.of(record, str(tmp_path / "out"))


EPOCH = "batch_id=shots-1"


@pytest.mark.parametrize("named", ["", "/_epochs"], ids=["by its OUT", "as the ledger has it"])
@pytest.mark.parametrize("moved", [False, True], ids=["it waits", "readers see it"])
def test_an_epoch_is_found_where_it_is_moved(store, tmp_path, named, moved):
    out = tmp_path / "out"
    record = make_batch(store, out / "_epochs", games(2, 4), batch_id="shots-1", input_="epoch 1")
    assert (record.out, record.shown_in) == (f"{out}/_epochs", str(out))
    if moved:
        (out / "_epochs" / EPOCH).rename(out / EPOCH)

    assert sum(map(len, slices(BatchOutputs.of(record, f"{out}{named}"), 2))) == 8


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
def test_an_epoch_that_was_merged_is_told_from_one_that_is_gone(store, tmp_path, left, error):
    out = tmp_path / "out"
    record = make_batch(store, out / "_epochs", games(2, 2), batch_id="shots-1", input_="epoch 1")
    (out / "_epochs" / EPOCH).rename(out / left)

    with pytest.raises(error):
        BatchOutputs.of(record, record.out)


def test_outcomes_of_which_a_file_is_missing_are_refused(store, tmp_path):
    record = make_batch(store, tmp_path / "out", games(2, 2))
    next((tmp_path / "out").rglob("part-1.parquet")).unlink()

    with pytest.raises(OutcomesMissingError):
        BatchOutputs.of(record, str(tmp_path / "out"))
