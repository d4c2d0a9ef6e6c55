"""A number of dead letters, or a share of all deliveries, that a batch may have."""

import pytest

from runtime import UsageError
from runtime.ledger.batch import DeadLetterLimit

COUNTS = {"processed": 180, "duplicate": 15, "too_late": 3, "dead_letter": 2, "outputs": 1000}


@pytest.mark.parametrize(
    ("text", "is_exceeded"),
    [("0", True), ("1", True), ("2", False), ("0%", True), ("0.99%", True), ("1%", False), ("100%", False)],
)
def test_only_more_are_too_many(text, is_exceeded):
    assert DeadLetterLimit.parse(text).is_exceeded(COUNTS) is is_exceeded


def test_without_dead_letters_there_are_never_too_many():
    assert not DeadLetterLimit.parse("0").is_exceeded({})
    assert not DeadLetterLimit.parse("0%").is_exceeded({"processed": 1})


@pytest.mark.parametrize("text", ["", "-1", "1.5", "100.1%", "%", "5 percent"])
def test_other_texts_are_refused(text):
    with pytest.raises(UsageError, match="is no number of dead letters"):
        DeadLetterLimit.parse(text)
