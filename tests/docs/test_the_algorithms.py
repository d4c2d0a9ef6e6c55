"""The figures of docs/algorithms.md are those of the code."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from uuid import NAMESPACE_OID, uuid5

import pytest

from benchmarks.algorithms.costs import AGAIN, HISTORY, NEW
from runtime import Envelope
from runtime.algorithms.outbox.entity import MAX_OUTBOX_BYTES
from runtime.publishing import DeliverySettings
from runtime.versions.limits import MAX_STATE_BYTES, MAX_TAIL_BYTES
from tests.unit.runtime.algorithms.batches import Batch
from tests.unit.runtime.algorithms.world import ALGORITHMS, World

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "algorithms.md").read_text()
TEXT = " ".join(PAGE.split())


def test_its_limits_are_those_of_the_code():
    state, outbox = MAX_STATE_BYTES // 1024, MAX_OUTBOX_BYTES // 1024

    assert f"{state} KiB, and {outbox} KiB for all entries of an entity" in TEXT
    assert f"When they take more than {outbox} KiB" in TEXT
    assert f"The tail holds the newest versions, up to {MAX_TAIL_BYTES // 1024} KiB" in TEXT
    assert f"at least {HISTORY.stop + len(NEW) - AGAIN} newer ones in its game" in TEXT


@pytest.mark.parametrize(
    ("algorithm", "sentence"),
    [
        ("outbox", "512 KiB, about {:,} messages with a small output each"),
        ("tokens", "each, {:,} with tokens."),
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
    assert sentence.format(round(fitting, -2)) in TEXT


def test_a_lock_expires_and_a_key_is_kept_as_long_as_it_says():
    settings = DeliverySettings()

    assert settings.lock_limit == timedelta(minutes=2)
    assert "A lock expires after two minutes" in TEXT
    assert f"| {settings.lock_limit // timedelta(milliseconds=1)} |" in TEXT
    assert f"| {settings.default_ttl // timedelta(seconds=1)} |" in TEXT


def test_it_names_every_algorithm():
    assert all(f"| `{algorithm}` |" in PAGE for algorithm in ALGORITHMS)
