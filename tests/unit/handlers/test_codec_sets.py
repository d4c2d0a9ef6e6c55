"""Sets are encoded in one order, although each process keeps them in another."""

from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field

from handlers import State
from handlers.codec import Codec
from tests.unit.handlers.processes import run_python

WORDS = ("lime", "pear", "fig", "plum", "kiwi", "date", "quince", "medlar")


class Basket(State):
    fruits: frozenset[str] = frozenset()


class Shelf(BaseModel):
    model_config = ConfigDict(frozen=True)

    fruits: frozenset[str] = Field(default=frozenset(), alias="fruitNames")


class Shop(State):
    shelves: tuple[Shelf, ...] = ()
    crates: frozenset[frozenset[str]] = frozenset()


class MaybeBasket(State):
    fruits: tuple[frozenset[str] | None, ...] = ()


PROGRAM = """
from tests.unit.handlers.test_codec_sets import *
basket = Basket(fruits=frozenset(WORDS))
shop = Shop(shelves=(Shelf(fruitNames=frozenset(WORDS)),), crates=frozenset({frozenset(WORDS), frozenset(WORDS[:4])}))
print(list(basket.fruits))
print(Codec(Basket).encode(basket).decode())
print(Codec(Shop).encode(shop).decode())
print(Codec(MaybeBasket).encode(MaybeBasket(fruits=(None, frozenset(WORDS)))).decode())
"""


def test_sets_are_encoded_alike_by_processes_with_different_hash_seeds():
    order, *encoded = run_python(PROGRAM, hash_seed=1).splitlines()
    other_order, *other_encoded = run_python(PROGRAM, hash_seed=2).splitlines()

    assert order != other_order, "the two processes happen to keep the set alike: choose other seeds"
    assert encoded == other_encoded
    assert len(encoded) == 3


@given(st.permutations(WORDS))
def test_a_set_is_sorted_whatever_the_order_in_which_it_was_filled(words):
    encoded = Codec(Basket).encode(Basket(fruits=frozenset(words)))

    assert encoded == b'{"fruits":["date","fig","kiwi","lime","medlar","pear","plum","quince"]}'


def test_sets_in_nested_models_and_in_sets_are_sorted_too():
    crates = frozenset({frozenset({"b", "a"}), frozenset({"c"}), frozenset({"a", "c"})})
    shop = Shop(shelves=(Shelf(fruitNames=frozenset({"b", "a"})),), crates=crates)

    encoded = Codec(Shop).encode(shop)

    assert encoded == b'{"shelves":[{"fruitNames":["a","b"]}],"crates":[["a","b"],["a","c"],["c"]]}'
