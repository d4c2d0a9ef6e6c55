from __future__ import annotations

import subprocess
import sys
from collections import Counter

import pytest

from eventstore import Shard

KEYS = [f"key-{number}" for number in range(100_000)]


def test_keys_are_spread_evenly():
    """100,000 keys over 10 shards, to one per cent."""
    counts = Counter(Shard.resolve(str(number), 10) for number in range(1, 100_001))

    assert set(counts) == set(range(10))
    assert all(abs(count - 10_000) <= 100 for count in counts.values())


@pytest.mark.parametrize(
    ("key", "shards"),
    [
        ("", [0, 3, 20, 647]),
        ("shard-test-1", [0, 8, 78, 810]),
        ("shard-test-2", [1, 6, 60, 442]),
        ("Größe", [1, 2, 54, 123]),
        ("6f9619ff-8b86-d011-b42d-00cf4fc964ff", [1, 6, 41, 41]),
    ],
)
def test_a_key_keeps_its_shards(key, shards):
    assert [Shard.resolve(key, total) for total in (2, 10, 100, 1000)] == shards


def test_one_more_shard_moves_only_keys_that_move_to_it():
    moved = 0
    for key in KEYS[:20_000]:
        before, after = Shard.resolve(key, 10), Shard.resolve(key, 11)
        moved += before != after
        assert after in (before, 10)

    assert 20_000 / 11 * 0.9 < moved < 20_000 / 11 * 1.1


def test_the_published_values_of_the_jump_hash_are_met():
    assert [Shard.resolve(number, 1) for number in (0, 1, 2**64 - 1)] == [0, 0, 0]
    assert Shard.resolve(1, 57) == Shard.resolve(1 + 2**64, 57)
    assert [Shard.resolve(10863919174838991, 11), Shard.resolve(2016238256797177309, 11)] == [6, 3]


def test_a_key_has_the_same_shard_in_every_process():
    program = "from eventstore import Shard; print([Shard.resolve(f'k{n}', 100) for n in range(50)])"
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    }

    assert outputs == {f"{[Shard.resolve(f'k{n}', 100) for n in range(50)]}\n"}


def test_text_and_its_bytes_in_utf_16_are_one_key():
    assert Shard.resolve("Größe", 1000) == Shard.resolve("Größe".encode("utf-16-le"), 1000)


@pytest.mark.parametrize("total", [0, -1])
def test_there_is_at_least_one_shard(total):
    with pytest.raises(ValueError, match="at least one shard"):
        Shard.resolve("key", total)
