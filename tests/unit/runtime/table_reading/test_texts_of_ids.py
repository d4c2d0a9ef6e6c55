"""Many ids become texts at once, as each one does by itself."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from runtime.messages.envelope import id_text
from runtime.tables.columns import id_texts

uuids = st.binary(min_size=16, max_size=16)


@given(keys=st.lists(uuids) | st.lists(st.none() | uuids | st.text(max_size=20)))
def test_each_has_its_own_text(keys):
    expected = pa.array([None if key is None else id_text(key) for key in keys], pa.string())

    found = id_texts(keys)

    found.validate(full=True)
    assert found == expected
