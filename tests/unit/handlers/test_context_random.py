"""`context.random` is a `random.Random` whose numbers depend on nothing but the message."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handlers import Context
from handlers.draws import Seed, SeededRandom
from tests.unit.handlers.processes import run_python

PROGRAM = """
import random
from handlers import Context
random.seed({seed})
drawn = Context("Bell", "east", "m-1", 0).random
cards = list(range(20))
drawn.shuffle(cards)
print(drawn.random(), drawn.getrandbits(100), drawn.gauss(0, 1), drawn.gauss(0, 1), cards)
print(drawn.choice("abcdefgh"), drawn.choices(range(9), k=4), drawn.sample(range(99), 4), drawn.randbytes(5))
print(drawn.triangular(), drawn.betavariate(1, 2), drawn.expovariate(1), drawn.normalvariate(0, 1))
"""


def seeded(message_id: str = "m-1") -> SeededRandom:
    return SeededRandom(Seed(message_id, "Bell", "east"))


def test_the_numbers_are_the_same_in_another_process_with_another_hash_seed():
    one = run_python(PROGRAM.format(seed=1), hash_seed=1)
    other = run_python(PROGRAM.format(seed=2), hash_seed=2)

    assert one == other
    assert len(one.splitlines()) == 3


def test_pythons_own_generator_is_neither_used_nor_moved():
    random.seed(7)
    untouched = random.random()
    random.seed(7)

    drawn = Context("Bell", "east", "m-1", 0).random
    drawn.gauss(0, 1)
    drawn.shuffle([1, 2, 3])

    assert random.random() == untouched


def test_it_is_the_same_generator_each_time_that_it_is_asked_for():
    context = Context("Bell", "east", "m-1", 0)

    assert context.random is context.random
    assert context.random.random() != context.random.random()
    assert isinstance(context.random, random.Random)


@given(st.lists(st.integers(0, 700), max_size=12))
def test_bits_come_from_one_row_however_they_are_cut(sizes):
    drawn, whole = seeded(), seeded().getrandbits(sum(sizes))

    for size in sizes:
        assert drawn.getrandbits(size) == whole & ((1 << size) - 1)
        whole >>= size


@given(st.integers(1, 10**30))
def test_a_number_of_a_range_is_in_the_range(stop):
    assert 0 <= seeded(str(stop)).randrange(stop) < stop


def test_floats_fill_the_range_from_zero_up_to_one():
    drawn = seeded()
    numbers = [drawn.random() for _ in range(4000)]

    assert 0 <= min(numbers) < 0.01
    assert 0.99 < max(numbers) < 1
    assert 0.48 < sum(numbers) / len(numbers) < 0.52


def test_all_numbers_of_a_range_are_about_as_frequent():
    drawn = seeded()
    counts = [0] * 10
    for _ in range(5000):
        counts[drawn.randrange(10)] += 1

    assert 400 < min(counts) <= max(counts) < 600


def test_a_negative_number_of_bits_is_refused():
    with pytest.raises(ValueError, match="The number of bits must not be negative"):
        seeded().getrandbits(-1)


def test_another_seed_changes_nothing():
    drawn = seeded()
    drawn.seed(7)

    assert drawn.random() == seeded().random()


def test_its_state_can_be_neither_taken_nor_set():
    # A generator set back within a handler would draw twice what a replay draws once.
    with pytest.raises(NotImplementedError, match="have no state to save"):
        seeded().getstate()
    with pytest.raises(NotImplementedError, match="cannot be set"):
        seeded().setstate(None)
