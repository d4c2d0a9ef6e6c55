"""Batches, redrives, parks and discards in any order, which die at any call: as a model says that keeps everything.

No letter is lost, none is redriven twice, and nothing overtakes a letter that parks its stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime import Outcome
from runtime.algorithms.choice import AlgorithmName
from runtime.algorithms.letters.selection import FoundLetter, Selection
from tests.unit.runtime.letters.model import Disturbances, Model, attempts
from tests.unit.runtime.letters.post import DAMAGED, PostOffice, deliveries, parcel
from tests.unit.runtime.worker import ends

NAMES = "abcde"


Names = st.text(NAMES, min_size=1, max_size=4).map(list)
ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("batch"), Names, st.booleans(), Disturbances),
        st.tuples(st.just("redrive"), st.booleans(), Disturbances),
        st.tuples(st.just("discard"), st.sampled_from(NAMES)),
        st.tuples(st.just("damage"), st.sets(st.sampled_from(NAMES))),
    ),
    max_size=12,
)


@pytest.mark.parametrize("algorithm", ["state-based", "outbox", "deduplication-store"])
@given(ACTIONS)
@settings(max_examples=150)
def test_what_becomes_of_messages_is_what_the_model_says(algorithm: AlgorithmName, actions):
    DAMAGED.clear()
    office, model = PostOffice(algorithm), Model()
    for action in actions:
        match action:
            case ("batch", names, park, disturbances):
                names = without_repetition(names)
                outcomes = disturbed_batch(office, names, park, disturbances)
                assert ends(outcomes) == model.batch(names, park=park)
            case ("redrive", in_part, disturbances):
                chosen = office.letters()[in_part:]
                outcomes = disturbed_redrive(office, chosen, disturbances)
                expected = model.redrive([each.letter.message_id for each in chosen])
                assert ends(outcomes) == expected
            case ("discard", name):
                office.discard(Selection(message_id=name))
                model.discard(name)
            case ("damage", names):
                DAMAGED.clear()
                DAMAGED.update(names - set(model.processed))  # or handlers would not be pure
        check(office, model)


def without_repetition(names: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(names))


def check(office: PostOffice, model: Model) -> None:
    """Compare what is stored with the model."""
    assert office.state() == model.processed
    kept = [
        (each.letter.message_id, each.letter.reason.value, each.letter.parks, each.letter.tries)
        for each in office.letters()
    ]
    assert kept == [(each.name, each.reason, each.parks, each.tries) for each in model.letters]


def disturbed_batch(office: PostOffice, names: Sequence[str], park: bool, disturbances) -> list[Outcome]:
    """Run a batch, attempt after attempt, each of which is disturbed at one of its calls but the last."""
    messages = [parcel(name) for name in names]
    on_error: Literal["park", "continue"] = "park" if park else "continue"
    office.number += 1
    return attempts(
        office.table, disturbances, lambda table: office.attempt(table, office.number, messages, on_error)
    )


def disturbed_redrive(office: PostOffice, chosen: Sequence[FoundLetter], disturbances) -> list[Outcome]:
    messages = deliveries(chosen)
    office.number += 1
    return attempts(
        office.table,
        disturbances,
        lambda table: office.attempt(table, office.number, messages, is_redrive=True),
    )
