"""Each line and each message of the corpus ends as it says, in whatever form a log is given, on either store."""

from collections import Counter
from datetime import timedelta

import pyarrow as pa
import pytest
from pyarrow import parquet

from runtime.spark import run_batch
from tests.faults.hostile.app import app
from tests.faults.hostile.corpus import lines, messages, packed_messages
from tests.support.names import new_name

pytestmark = pytest.mark.thorough


def table(given, body) -> pa.Table:
    headers = pa.map_(pa.string(), pa.string())
    types = {"message_id": pa.string(), "type": pa.string(), "body": body, "business_id": pa.string()}
    rows = [{**each.columns, "headers": list((each.columns.get("headers") or {}).items())} for each in given]
    return pa.Table.from_pylist(rows, pa.schema([*types.items(), ("headers", headers)]))


def as_lines(_, folder):
    given = [*lines(), *(message.line() for message in messages())]
    (folder / "log.jsonl").write_bytes(b"".join(each.content + b"\n" for each in given))
    return given, str(folder / "log.jsonl")


def as_parquet_with_text(_, folder):
    parquet.write_table(table(messages(), pa.string()), folder / "log.parquet")
    return messages(), str(folder / "log.parquet")


def as_parquet_with_msgpack(_, folder):
    parquet.write_table(table(packed_messages(), pa.binary()), folder / "log.parquet")
    return packed_messages(), str(folder / "log.parquet")


def as_a_table_in_memory(*_):
    return messages(), table(messages(), pa.string())


def as_a_data_frame_of_spark(spark, _):
    return messages(), spark.createDataFrame(table(messages(), pa.string()))


ON_BOTH = (as_parquet_with_text, as_parquet_with_msgpack, as_a_data_frame_of_spark)


@pytest.mark.parametrize(
    ("form", "store"),
    [
        *[(form, "sqlite") for form in (as_lines, as_a_table_in_memory, *ON_BOTH)],
        *[(form, "azurite") for form in ON_BOTH],
    ],
)
def test_each_ends_as_the_corpus_says(spark, tmp_path, request, form, store):
    given, log = form(spark, tmp_path)
    url = f"sqlite:///{tmp_path}/store.db" if store == "sqlite" else request.getfixturevalue("azurite_url")
    timeout = timedelta(seconds=3)

    outcomes = run_batch(
        spark, log, app, store=url, table=new_name(), out=str(tmp_path / "out"), handler_timeout=timeout
    ).collect()

    found = Counter((row.message_id, row.reason or row.status) for row in outcomes)
    expected = Counter(end for each in given for end in each.ends)
    assert (found - expected, expected - found) == (Counter(), Counter())
