from __future__ import annotations

import copy
import pickle
import re

import pytest

from eventstore import errors

EXAMPLES = [
    errors.EventStoreError("what"),
    errors.StoreUrlError("what"),
    errors.TableNotFoundError("games", "memory:"),
    errors.StoreUnavailableError("what"),
    errors.StoreUnavailableError("what", outcome_unknown=True),
    errors.TableNameError("what"),
    errors.InvalidKeyError("what"),
    errors.PayloadTooLargeError("what"),
    errors.StreamNotFoundError("orders|7"),
    errors.StreamDeletedError("orders|7"),
    errors.StreamTruncatedError("orders|7", 3),
    errors.DamagedRowError("orders|7", "SS-HEAD", "is no header"),
    errors.ConcurrencyConflictError("orders|7", "its header has been changed"),
    errors.DuplicateEventError("orders|7", "id"),
    errors.IncludeConflictError("orders|7", "row", "exists already"),
    errors.PartialWriteError("orders|7", 4, 98, 49, 200),
    errors.PartialWriteError("orders|7", None, 0, 49, 200),
    errors.RowError("row", 2),
    errors.RowExistsError("row", 2),
    errors.RowNotFoundError("row", 2),
    errors.RowChangedError("row", 2),
]


def all_errors():
    return {
        value
        for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, errors.EventStoreError)
    }


def test_there_is_an_example_of_every_error():
    assert {type(example) for example in EXAMPLES} == all_errors()


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize(
    "travel", [lambda error: pickle.loads(pickle.dumps(error)), copy.copy, copy.deepcopy]
)
def test_every_error_says_something_and_survives_pickling(error, travel):
    arrived = travel(error)

    assert type(arrived) is type(error)
    assert vars(arrived) == vars(error)
    assert str(arrived) == str(error)
    for fact in error.args:
        assert isinstance(fact, bool) or fact is None or str(fact) in str(error)


def test_the_tree_in_the_documentation_names_every_error():
    named = set(re.findall(r"\b([A-Z]\w+Error)\b", errors.__doc__ or ""))

    assert named == {error.__name__ for error in all_errors()}
