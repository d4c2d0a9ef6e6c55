"""Draws are derived from the message: the same each time, under every Python, and different for another message."""

import random
import shutil
import subprocess
import sys
from itertools import permutations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handlers import Context
from handlers.draws import Seed, SeededRandom
from tests.unit.handlers.bell import Rang
from tests.unit.handlers.processes import REPOSITORY

HERE = Path(__file__).parent


def pythons() -> list[str]:
    """Return this interpreter, and each newer one on the path that starts: a name may lead nowhere."""
    paths = filter(None, map(shutil.which, (f"python3.{minor}" for minor in range(11, 20))))
    starting = [each for each in paths if subprocess.run([each, "-c", ""], check=False).returncode == 0]
    return list(dict.fromkeys([sys.executable, *starting]))


@pytest.mark.parametrize("python", pythons())
@pytest.mark.parametrize("hash_seed", ["0", "7"])
def test_every_python_draws_the_recorded_values(python, hash_seed):
    # -S leaves out all packages that are installed: the module depends on none.
    program = [HERE / "golden_draws.py", REPOSITORY / "handlers/draws.py", HERE / "golden_draws.json"]
    done = subprocess.run(
        [python, "-S", *program],
        env={"PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "draws the same" in done.stdout


def seeded(message_id: str = "m-1") -> SeededRandom:
    return SeededRandom(Seed(message_id, "Bell", "east"))


def test_pythons_own_generator_is_neither_used_nor_moved():
    random.seed(7)
    untouched = random.random()
    random.seed(7)

    drawn = Context("Bell", "east", "m-1", 0).random
    drawn.uniform(0, 1)
    drawn.shuffle([1, 2, 3])

    assert random.random() == untouched


@given(st.lists(st.integers(0, 700), max_size=12))
def test_bits_come_from_one_row_however_they_are_cut(sizes):
    drawn, whole = seeded(), seeded().getrandbits(sum(sizes))

    for size in sizes:
        assert drawn.getrandbits(size) == whole & ((1 << size) - 1)
        whole >>= size


OFFERED = {
    "random", "getrandbits", "randbytes", "randrange", "randint", "choice", "choices", "shuffle", "sample", "uniform"
}  # fmt: skip


def test_what_is_not_the_same_everywhere_is_refused_and_what_to_do_is_said():
    methods = {
        name
        for name in dir(random.Random)
        if not name.startswith("_") and callable(getattr(random.Random, name))
    }

    # A generator set back within a handler would draw twice what a replay draws once.
    for name in methods - OFFERED - {"seed"}:
        with pytest.raises(NotImplementedError, match=rf"has no {name}\(\), .*capture\('{name}', lambda"):
            getattr(seeded(), name)(1, 1)
    assert {"gauss", "triangular", "expovariate"} <= methods - OFFERED
    assert methods >= OFFERED
    drawn = seeded()
    drawn.seed(7)
    assert drawn.random() == seeded().random()


class Standard(random.Random):
    """The standard library's ways of this Python, on the bits of a message."""

    def __init__(self, message_id: str) -> None:
        self._draws = seeded(message_id)
        super().__init__(0)

    def getrandbits(self, k: int, /) -> int:
        return self._draws.getrandbits(k)

    def random(self) -> float:
        return self._draws.random()


@given(st.text(max_size=3), st.integers(0, 300), st.data())
def test_what_is_offered_is_what_the_standard_library_of_python_3_11_gives(message_id, count, data):
    ours, theirs = seeded(message_id), Standard(message_id)
    k = data.draw(st.integers(0, count))
    population = range(count)

    assert ours.sample(population, k) == theirs.sample(population, k)
    assert ours.randrange(-7, 7 + count, 3) == theirs.randrange(-7, 7 + count, 3)
    assert ours.randrange(count + 7, -7, -5) == theirs.randrange(count + 7, -7, -5)
    assert ours.uniform(-count, k) == theirs.uniform(-count, k)
    if count:
        weights = [(number % 7) + 0.1 for number in population]
        assert ours.choice(population) == theirs.choice(population)
        assert ours.choices(population, k=k) == theirs.choices(population, k=k)
        assert ours.choices(population, weights, k=k) == theirs.choices(population, weights, k=k)
        counts = [number % 3 + 1 for number in population]
        assert ours.sample(population, k, counts=counts) == theirs.sample(population, k, counts=counts)
    mine, others = list(population), list(population)
    ours.shuffle(mine)
    theirs.shuffle(others)
    assert mine == others
    assert ours.random() == theirs.random()


@pytest.mark.parametrize(
    ("name", "arguments", "options", "error"),
    [
        ("getrandbits", (-1,), {}, ValueError),
        ("randrange", (0,), {}, ValueError),
        ("randrange", (3, 3), {}, ValueError),
        ("randrange", (1, 9, -1), {}, ValueError),
        ("randrange", (1, 9, 0), {}, ValueError),
        ("randrange", (1.5,), {}, TypeError),
        ("randint", (2, 1), {}, ValueError),
        ("choice", ("",), {}, IndexError),
        ("choices", ("abc",), {"weights": [1, 2]}, ValueError),
        ("choices", ("ab",), {"weights": [0, 0]}, ValueError),
        ("choices", ("ab",), {"weights": [1, float("inf")]}, ValueError),
        ("choices", ("ab",), {"weights": [1, 2], "cum_weights": [1, 3]}, TypeError),
        ("choices", ("",), {}, IndexError),
        ("sample", ("abc", 4), {}, ValueError),
        ("sample", ("abc", -1), {}, ValueError),
        ("sample", ({"a", "b"}, 1), {}, TypeError),
        ("sample", ("ab", 1), {"counts": [1]}, ValueError),
        ("sample", ("ab", 1), {"counts": [0, 0]}, ValueError),
    ],
)
def test_what_cannot_be_drawn_is_refused(name, arguments, options, error):
    with pytest.raises(error):
        getattr(seeded(), name)(*arguments, **options)


def context(handler: str = "Bell", business_id: str = "east", message_id: str = "m-1") -> Context:
    return Context(handler, business_id, message_id, 0)


DRAW = {
    "guid": lambda drawn: str(drawn.new_guid()),
    "message": lambda drawn: drawn.publish(Rang(tower="east")) or drawn.published[-1].message_id,
    "random": lambda drawn: drawn.random.getrandbits(64),
}


@pytest.mark.parametrize("other", [{"handler": "Clock"}, {"business_id": "west"}, {"message_id": "m-2"}])
def test_no_draw_is_that_of_another_message_handler_business_object_or_kind(other):
    drawn = [draw(each) for each in (context(), context(**other)) for draw in DRAW.values() for _ in range(3)]

    assert len(set(drawn)) == len(drawn)


def test_one_more_draw_of_a_kind_never_shifts_another():
    alone = {kind: draw(context()) for kind, draw in DRAW.items()}

    for order in permutations(DRAW):
        drawn = context()
        for kind in order:
            first, *_ = [DRAW[kind](drawn) for _ in range(3)]
            assert first == alone[kind]


@given(st.text(alphabet="ab-\x00", min_size=1, max_size=8), st.data())
def test_parts_that_read_alike_when_joined_draw_differently(joined, data):
    cuts = st.lists(st.integers(0, len(joined)), min_size=3, max_size=3).map(sorted)
    one, other = data.draw(cuts), data.draw(cuts)

    def draw(first: int, second: int, third: int) -> bytes:
        seed = Seed(joined[:first], joined[first:second], joined[second:third])
        return seed.draw(joined[third:], 0)

    assert (draw(*one) == draw(*other)) == (one == other)
