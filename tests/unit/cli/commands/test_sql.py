"""`consistent sql`, and what a cut means for duplicates."""

import csv
import io

import pytest

from handlers import App, Context, Handler, Message, State, handles
from runtime import Envelope, Processor
from runtime.algorithms.state_based.truncation import DAY, TruncationChoices, truncate_stream
from runtime.cli.commands import sql
from runtime.ledger.batch import OpenBatches
from runtime.retries import RetryPolicy
from runtime.tables import sql as datasets
from runtime.tables.reader import scan
from runtime.versions.head import Head
from runtime.versions.readable import recognised
from tests.support.logs import GAME
from tests.unit.cli.stores import NOW, TABLE, on_store

ON_STORE = ["--store", "sqlite:///store.db", "--table", TABLE]


@pytest.fixture
def cut(store):
    """Cut the first versions of the game, whose messages have no time."""
    rules = TruncationChoices(older_than=DAY, allow_undated=True, keep_last=1, acknowledged_after=0).as_of(
        NOW.microseconds + 2 * DAY, OpenBatches()
    )
    retries = RetryPolicy()
    on_store(
        store, lambda table: truncate_stream(table, f"ShootingRange-{GAME}", rules, retries.beside(table))
    )


def test_the_window_of_an_object(consistent, cut):
    said = consistent("show", *ON_STORE, "ShootingRange", GAME.upper())

    assert "An unknown message without enqueued_at is too_late." in " ".join(said.out.split())
    document = consistent("show", *ON_STORE, "ShootingRange", GAME, "--json").document
    assert (document["horizon"], document["undated_cut"], document["kept_from"]) == (None, True, 3)
    assert document["recognised"].startswith("All duplicates with enqueued_at are recognised")


@pytest.mark.parametrize(
    ("horizon", "undated_cut", "words"),
    [
        (
            NOW.microseconds,
            False,
            ("after 2026-03-01T12:00:00+00:00", "All duplicates without enqueued_at are recognised"),
        ),
        (NOW.microseconds, True, ("after 2026-03-01T12:00:00+00:00", "without enqueued_at is too_late")),
        (None, True, ("All duplicates with enqueued_at", "without enqueued_at is too_late")),
        (None, False, ("No version was truncated",)),
    ],
)
def test_what_a_cut_means_for_duplicates(horizon, undated_cut, words):
    said = recognised(Head(None, 1, 5, 1, horizon=horizon, undated_cut=undated_cut))

    assert all(each in said for each in words)


def test_the_window_of_a_table(consistent, cut):
    found = consistent("sql", "@window", *ON_STORE, "--json").document

    rows = [dict(zip(found["columns"], row, strict=True)) for row in found["rows"]]
    assert [(row["handler"], row["objects"], row["cut"], row["undated_cut"]) for row in rows] == [
        ("LeaderBoard", 1, 0, False),
        ("ShootingRange", 2, 1, True),
    ]


def test_what_a_table_holds_is_a_table_too(consistent, store):
    document = consistent("sql", "@stats", *ON_STORE, "--json").document

    counted = consistent("show", "--stats", *ON_STORE, "--json").document
    rows = [dict(zip(document["columns"], row, strict=True)) for row in document["rows"]]
    others = dict.fromkeys(document["columns"]) | counted["others"]
    assert rows == [*counted["handlers"], others]
    ((total,),) = consistent("sql", "select sum(rows) from stats", *ON_STORE, "--json").document["rows"]
    assert total == 3


COUNT = "select handler, count(*) as versions from versions group by 1 order by 1"


@pytest.fixture
def scanned(monkeypatch):
    """Collect the requests that the tables of a query are scanned for."""
    requests = []

    def note(store, table, request):
        requests.append(request)
        return scan(store, table, request)

    monkeypatch.setattr(datasets, "scan", note)
    return requests


def test_a_query_is_answered_as_a_table_json_and_csv(consistent, store):
    said = consistent("sql", COUNT, *ON_STORE)
    assert (said.code, said.err) == (0, "")
    assert ["LeaderBoard", "2"] in [line.split() for line in said.out.splitlines()]

    document = consistent("sql", COUNT, *ON_STORE, "--json").document
    assert document == {
        "columns": ["handler", "versions"],
        "rows": [["LeaderBoard", 2], ["ShootingRange", 4]],
    }

    written = consistent("sql", COUNT, *ON_STORE, "--csv").out
    assert list(csv.reader(io.StringIO(written)))[1:] == [["LeaderBoard", "2"], ["ShootingRange", "4"]]


def test_a_query_comes_from_standard_input(consistent, store, monkeypatch):
    query = "select count(*) as n from state"
    given = consistent("sql", query, *ON_STORE, "--csv")
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{query};\n"))

    assert consistent("sql", "-", *ON_STORE, "--csv").out == given.out


def test_only_the_tables_and_columns_that_a_query_names_are_read(consistent, store, scanned):
    consistent("sql", COUNT, *ON_STORE)

    assert [(request.kind, request.query.columns) for request in scanned] == [("versions", ("handler",))]


def test_a_condition_on_any_column_is_met(consistent, store):
    statement = (
        f"select version from versions where '{GAME}' = business_id and handler in ('ShootingRange') "
        "and now > timestamptz '2026-02-01 00:00:00Z' order by 1"
    )

    assert consistent("sql", statement, *ON_STORE, "--json").document["rows"] == [[1], [2], [3]]


def test_options_narrow_the_tables(consistent, store):
    statement = "select count(*) from state"

    assert consistent("sql", statement, *ON_STORE, "--json").document["rows"] == [[3]]
    narrowed = [*ON_STORE, "--handler", "ShootingRange", "--id", GAME.upper(), "--json"]
    assert consistent("sql", statement, *narrowed).document["rows"] == [[1]]


def test_values_that_json_has_not_are_texts(consistent, store):
    statement = "select now, fingerprint, map {'a': 1}, null from versions limit 1"

    ((now, fingerprint, map_, nothing),) = consistent("sql", statement, *ON_STORE, "--json").document["rows"]

    assert now == "2026-03-01T12:00:00Z"
    assert len(bytes.fromhex(fingerprint)) == 16
    assert (map_, nothing) == ({"a": 1}, None)


def test_numbers_that_json_has_not_are_null(consistent, store):
    statement = "select 'nan'::double, [1, '-inf'::double]"

    assert consistent("sql", statement, *ON_STORE, "--json").document["rows"] == [[None, [1, None]]]


@pytest.mark.parametrize(
    ("expression", "number"),
    [
        ("sum(version)", 7),
        ("sum(version)::hugeint * 10**18::hugeint", 7 * 10**18),
        ("170141183460469231731687303715884105727::hugeint", 2**127 - 1),
        ("[sum(version), 1]", [7, 1]),
        ("{'a': {'b': sum(version)}}", {"a": {"b": 7}}),
        ("count(*)::uhugeint", 4),
        ("1.50::decimal(4, 2)", "1.50"),
    ],
)
def test_integers_of_any_size_are_numbers(consistent, store, expression, number):
    statement = f"select {expression} from versions where handler = 'ShootingRange' limit 1"

    assert consistent("sql", statement, *ON_STORE, "--json").document["rows"] == [[number]]


class Looks(State):
    total: int = 1
    Total: int = 2


class Inside(State):
    within: tuple[Looks, ...] = ()


class Seen(Message):
    place: str


class Eyes(Handler[Looks]):
    @handles(by="place")
    def see(self, state: Looks, message: Seen, context: Context) -> Looks:
        return state


class Rooms(Handler[Inside]):
    @handles(by="place")
    def see(self, state: Inside, message: Seen, context: Context) -> Inside:
        return state


@pytest.mark.parametrize("handler", [Eyes, Rooms])
def test_fields_that_sql_takes_for_one_are_refused_and_json_tells_them_apart(
    consistent, store, monkeypatch, handler
):
    monkeypatch.setattr(sql, "load_app", lambda _name: App(handler))
    seen = Envelope.of("m", "Seen", '{"place": "x"}')

    async def ignore(_output):
        """Nothing is published."""

    on_store(store, lambda table: Processor(App(handler), table, ignore).process(seen))
    options = [*ON_STORE, "--handler", handler.__name__, "--json"]

    refused = consistent("sql", "select 1", *options, "--app", "eyes:app")

    assert (refused.code, refused.out) == (2, "")
    assert "total and Total" in refused.err
    if handler is Eyes:
        statement = "select state::json->>'total', state::json->>'Total' from state"
        assert consistent("sql", statement, *options).document["rows"] == [["1", "2"]]


@pytest.mark.parametrize(
    ("statement", "is_allowed"),
    [
        ("copy (select 1) to 'written.csv'", True),
        ("select * from 'there.csv'", True),
        ("select * from read_text('there.csv')", True),
        ("select * from glob('*')", True),
        ("attach 'written.db'", True),
        ("export database 'written'", True),
        ("load spatial", False),
        ("install spatial from 'nowhere'", False),
        ("set enable_external_access = true", False),
    ],
)
def test_files_and_extensions_are_for_queries_that_may(consistent, store, tmp_path, statement, is_allowed):
    (tmp_path / "there.csv").write_text("a,b\n1,2\n", encoding="utf-8")
    before = sorted(tmp_path.iterdir())

    refused = consistent("sql", statement, *ON_STORE)

    assert (refused.code, refused.out) == (2, "")
    assert sorted(tmp_path.iterdir()) == before
    if is_allowed:
        said = consistent("sql", statement, *ON_STORE, "--allow-files")
        assert (said.code, said.err) == (0, "")


def test_times_are_in_utc_wherever_the_machine_is(consistent, store, monkeypatch):
    monkeypatch.setenv("TZ", "America/New_York")
    statement = "select count(*), max(now)::varchar from versions where now < '2026-03-01 12:00:01'"

    ((count, newest),) = consistent("sql", statement, *ON_STORE, "--json").document["rows"]

    assert (count, newest) == (6, "2026-03-01 12:00:00+00")
