"""Times without a zone are UTC, whatever zone the session of a user is in."""

from datetime import UTC, datetime

import pytest

from runtime.spark.logs.normalise import normalise
from tests.support.logs import GAME

MOMENT = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
SPELLINGS = [
    "2026-01-31 12:00:00",
    "2026-01-31T12:00:00.000000",
    "2026-01-31T12:00:00Z",
    "2026-01-31T14:00:00+02:00",
    "2026-01-31T06:30:00-0530",
]


@pytest.fixture
def session_elsewhere(spark):
    spark.conf.set("spark.sql.session.timeZone", "Pacific/Auckland")
    yield spark
    spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_as_text(session_elsewhere):
    rows = [(GAME, "FireAt", "{}", each) for each in SPELLINGS]
    log = session_elsewhere.createDataFrame(
        rows, "message_id string, type string, body string, enqueued_at string"
    )
    assert micros(log) == [(None, int(MOMENT.timestamp() * 1_000_000))] * len(SPELLINGS)


def test_as_a_timestamp_without_a_zone(session_elsewhere):
    rows = [(GAME, "FireAt", "{}", MOMENT.replace(tzinfo=None))]
    log = session_elsewhere.createDataFrame(
        rows, "message_id string, type string, body string, enqueued_at timestamp_ntz"
    )
    assert micros(log) == [(None, int(MOMENT.timestamp() * 1_000_000))]


def micros(log):
    return [tuple(row) for row in normalise(log).selectExpr("problem", "unix_micros(enqueued_at)").collect()]
