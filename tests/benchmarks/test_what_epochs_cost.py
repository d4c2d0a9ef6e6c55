"""An epoch of a stream asks the store as often as the one before, however many there were."""

from __future__ import annotations

from benchmarks.epochs import run, table

_ONE_ROUND, _TWO_ROUNDS = 6, 8
"""Find the batch, read the counter, begin; open batches and commit for each round; publish."""


def test_requests_do_not_grow_with_the_number_of_epochs(tmp_path):
    # Given a start, after which the first epoch looks for the table's settings and for who has the checkpoint
    first, *others = run(tmp_path, epochs=24, messages=2, compact_after=4)

    # Then all others ask what their rounds need, and see the same number of rows
    assert first.requests > _TWO_ROUNDS
    assert {each.requests for each in others} == {_ONE_ROUND, _TWO_ROUNDS}
    assert len({each.rows for each in others if each.requests == _TWO_ROUNDS}) == 1
    last = [each.operations for each in others[-4:]]
    assert sum(last) <= sum(each.operations for each in others[4:8]) * 1.2

    # ... and the files are those of merged epochs
    *_, files = table([first, *others], tmp_path, 4)
    assert "left 12 files of outcomes" in files
