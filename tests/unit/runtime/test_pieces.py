"""Values of equal size that were joined are told apart again, unless one of them is not whole."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.messages.envelope import pieces


@given(values=st.lists(st.binary(min_size=3, max_size=3)))
def test_joined_values_are_told_apart(values):
    assert pieces(b"".join(values), 3) == values


def test_bytes_that_are_no_whole_values_are_refused():
    with pytest.raises(ValueError, match="7 bytes are no values of 3 bytes"):
        pieces(b"1234567", 3)
