"""What parses bytes of others is given the corpora, and inputs made of them by cutting, joining and changing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.faults.fuzz.targets import CORPORA, TARGETS, inputs

names = pytest.mark.parametrize("name", TARGETS)


@names
def test_what_was_kept_breaks_nothing(name):
    for data in inputs(name):
        TARGETS[name].run(data)


@names
def test_the_seeds_are_well_formed_and_a_corpus_is_kept(name):
    assert all(map(TARGETS[name].run, TARGETS[name].seeds))
    assert any((CORPORA / name).iterdir())


@st.composite
def mutations(draw, known):
    """Draw an input that is like one of those that are known."""
    data = bytearray(draw(st.sampled_from(known)))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data)))
        end = min(len(data), at + draw(st.integers(0, 4)))
        other = draw(st.sampled_from(known))[at : at + 9]
        data[at:end] = draw(st.one_of(st.binary(max_size=4), st.just(other)))
    return bytes(data)


@names
@given(data=st.data())
def test_what_is_like_them_breaks_nothing(name, data):
    TARGETS[name].run(data.draw(mutations(inputs(name))))


@names
@given(data=st.binary(max_size=200))
def test_any_bytes_break_nothing(name, data):
    TARGETS[name].run(data)
