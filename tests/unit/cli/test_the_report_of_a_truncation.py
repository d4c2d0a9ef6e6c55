"""What a truncation cut, by handlers, rules and what holds streams, with what it cost."""

import io

from rich.console import Console

from runtime.cli.commands.truncate import TruncationReport
from runtime.spark.truncation import TruncatedCount

COUNTS = [
    TruncatedCount("Game", "handler", None, 5, 4, 40, 8, 12, 1000),
    TruncatedCount("Game", "handler", "open_batch", 2, 1, 3, 1, 0, 50, letters=7),
    TruncatedCount("Game", "stream", "hold", 1, 0, 0, 0, 0, 0),
    TruncatedCount("Score", None, None, 3, 0, 0, 0, 0, 0),
    TruncatedCount("Score", None, "hold", 1, 0, 0, 0, 0, 0),
]


def shown(report: TruncationReport) -> str:
    file = io.StringIO()
    console = Console(width=200, file=file)
    for part in report.parts():
        console.print(part)
    return file.getvalue()


def test_its_document_sums_up():
    document = TruncationReport(COUNTS, 24, dry_run=False).document()

    assert document["handlers"] == [
        {
            "handler": "Game",
            "streams": 8,
            "cut": 5,
            "versions": 43,
            "runs": 9,
            "rows": 12,
            "bytes": 1050,
            "letters": 7,
        },
        {
            "handler": "Score",
            "streams": 4,
            "cut": 0,
            "versions": 0,
            "runs": 0,
            "rows": 0,
            "bytes": 0,
            "letters": 0,
        },
    ]
    assert (document["streams"], document["cut"], document["rows"], document["bytes"]) == (12, 5, 12, 1050)
    assert (document["requests"], document["requests_per_row"]) == (24, 2.0)
    assert document["letters"] == 7
    assert document["held"] == {"hold": 2, "open_batch": 2}
    assert document["rules"] == {"handler": 7, "stream": 1}
    assert document["without_rules"] == 3


def test_people_read_it_in_sentences():
    text = shown(TruncationReport(COUNTS, 24, dry_run=False))

    assert "43 versions in 9 runs were cut, of 5 out of 12 streams." in text
    assert (
        "By the policies of the table: 7 streams by that of the handler, 1 stream by that of the stream."
        in text
    )
    assert "3 streams have no policy, and were left alone." in text
    assert "Held back: 2 streams by a hold, 2 streams by batches that are not published." in text
    assert "12 rows deleted. 24 requests, 2.00 for each row." in text


def test_a_dry_run_speaks_of_what_would_be():
    text = shown(TruncationReport([TruncatedCount("Game", "given", None, 1, 1, 1, 1, 1, 1)], 5, dry_run=True))

    assert "1 version in 1 run would be cut, of 1 out of 1 stream." in text
    assert "1 row would be deleted. 5 requests, 5.00 for each row." in text
    assert "policies" not in text


def test_where_nothing_is_deleted_nothing_is_divided():
    report = TruncationReport([TruncatedCount("Game", "given", None, 1, 0, 0, 0, 0, 0)], 5, dry_run=False)

    assert report.document()["requests_per_row"] is None
    assert "0 rows deleted. 5 requests." in shown(report)
