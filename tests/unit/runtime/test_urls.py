"""What is in a folder has a url of its own, which keeps the options of that of the folder."""

import pytest

from runtime.file_systems import within


@pytest.mark.parametrize(
    ("folder", "inside"),
    [
        ("/out", "/out/_staging/a"),
        ("/what?", "/what?/_staging/a"),
        ("s3://bucket/out", "s3://bucket/out/_staging/a"),
        ("s3://bucket/out?scheme=http&region=x", "s3://bucket/out/_staging/a?scheme=http&region=x"),
    ],
)
def test_what_is_in_a_folder(folder, inside):
    assert within(folder, "_staging", "a") == inside
