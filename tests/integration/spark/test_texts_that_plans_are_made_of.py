"""Names of handlers and types are put into SQL text, and mean there what they are, whatever they hold."""

from __future__ import annotations

from runtime.spark.logs.normalise import first_of, text, texts
from runtime.spark.session import job_settings

_HOSTILE = [
    "plain",
    "it's",
    'a "word"',
    "') OR ('1' = '1",
    "\\",
    "\\'",
    "\\d+\\z",
    "\\u0041 \\n \\% \\_ \\101",
    "${spark.app.name} and ${env:HOME} and $${x}",
    "$1-$2",
    "-- no comment /* nor this */",
    ":name ? {}",
    "line\nbreak\ttab \r",
    "größer 🎯",
]


def test_texts_are_what_they_were(place):
    columns = [f"{text(value)} AS value_{number}" for number, value in enumerate(_HOSTILE)]
    assert list(place.spark.range(1).selectExpr(*columns).first()) == _HOSTILE


def test_a_job_reads_texts_so_on_a_session_that_reads_them_otherwise(place):
    name = "spark.sql.parser.escapedStringLiterals"
    place.spark.conf.set(name, "true")
    try:
        with job_settings(place.spark):
            found = place.spark.range(1).selectExpr(f"array({texts(_HOSTILE)}) AS found").first().found
    finally:
        place.spark.conf.unset(name)

    assert found == _HOSTILE


def test_a_session_that_reads_them_so_is_left_alone(place):
    with job_settings(place.spark):
        assert place.spark.conf.get("spark.sql.parser.escapedStringLiterals", None) is None


def test_the_first_case_that_holds_gives_the_value(place):
    cases = [("id = 1", "'one'"), ("id < 3", "'few'")]
    columns = [
        f"{first_of(cases)} AS found",
        f"{first_of(cases, text('many'))} AS other",
        f"{first_of([], 'id')} AS none",
    ]

    rows = place.spark.range(0, 4, 1, 1).selectExpr(*columns).collect()

    assert [tuple(row) for row in rows] == [
        ("few", "few", 0),
        ("one", "one", 1),
        ("few", "few", 2),
        (None, "many", 3),
    ]
