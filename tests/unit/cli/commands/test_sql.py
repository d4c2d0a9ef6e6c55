"""`consistent sql`: tables, options, forms of output, and access to files."""

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
from tests.unit.cli.stores import NOW, ON_STORE, on_store

COUNT = "select handler, count(*) as versions from versions group by 1 order by 1"


@pytest.fixture
def rows(consistent, store):
    """Return a function that runs a statement, and returns its rows."""
    return lambda statement, *more: consistent("sql", statement, *ON_STORE, *more, "--json").document["rows"]


def test_the_window_of_a_truncated_object_and_of_its_table(consistent, store):
    rules = TruncationChoices(older_than=DAY, allow_undated=True, keep_last=1, acknowledged_after=0).as_of(
        NOW.microseconds + 2 * DAY, OpenBatches()
    )
    key, retries = f"ShootingRange-{GAME}", RetryPolicy()
    on_store(store, lambda table: truncate_stream(table, key, rules, retries.beside(table)))

    said = consistent("show", *ON_STORE, "ShootingRange", GAME.upper()).out
    assert "An unknown message without enqueued_at is too_late." in " ".join(said.split())
    document = consistent("show", *ON_STORE, "ShootingRange", GAME, "--json").document
    assert (document["horizon"], document["undated_cut"], document["kept_from"]) == (None, True, 3)
    assert document["recognised"].startswith("All duplicates with enqueued_at are recognised")
    found = consistent("sql", "@window", *ON_STORE, "--json").document
    assert found["columns"][:4] == ["handler", "objects", "cut", "undated_cut"]
    assert [row[:4] for row in found["rows"]] == [["LeaderBoard", 1, 0, False], ["ShootingRange", 2, 1, True]]


@pytest.mark.parametrize(
    ("horizon", "undated_cut", "words"),
    [
        (NOW.microseconds, False, ("12:00:00+00:00", "All duplicates without enqueued_at are recognised")),
        (NOW.microseconds, True, ("after 2026-03-01T12:00:00+00:00", "without enqueued_at is too_late")),
        (None, True, ("All duplicates with enqueued_at", "without enqueued_at is too_late")),
        (None, False, ("No version was truncated",)),
    ],
)
def test_recognised_duplicates_are_described(horizon, undated_cut, words):
    said = recognised(Head(None, 1, 5, 1, horizon=horizon, undated_cut=undated_cut))

    assert all(each in said for each in words)


def test_stats_are_a_table(consistent, rows):
    document = consistent("sql", "@stats", *ON_STORE, "--json").document

    counted = consistent("show", "--stats", *ON_STORE, "--json").document
    found = [dict(zip(document["columns"], row, strict=True)) for row in document["rows"]]
    assert found == [*counted["handlers"], dict.fromkeys(document["columns"]) | counted["others"]]
    assert rows("select sum(rows) from stats") == [[3]]


def test_a_result_is_a_table_json_or_csv_and_the_statement_may_be_piped(consistent, rows, monkeypatch):
    said = consistent("sql", COUNT, *ON_STORE)
    assert (said.code, said.err) == (0, "")
    assert ["LeaderBoard", "2"] in [line.split() for line in said.out.splitlines()]
    assert rows(COUNT) == [["LeaderBoard", 2], ["ShootingRange", 4]]

    written = consistent("sql", COUNT, *ON_STORE, "--csv").out
    expected = [["handler", "versions"], ["LeaderBoard", "2"], ["ShootingRange", "4"]]
    assert list(csv.reader(io.StringIO(written))) == expected
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{COUNT};\n"))
    assert consistent("sql", "-", *ON_STORE, "--csv").out == written


@pytest.mark.parametrize(("is_terminal", "text"), [(True, "\\x1b]0;x"), (False, "\x1b]0;x")])
def test_csv_cannot_control_a_terminal_and_is_kept_in_a_pipe(
    consistent, store, monkeypatch, is_terminal, text
):
    monkeypatch.setattr("sys.stdout.isatty", lambda: is_terminal)

    said = consistent("sql", "select chr(27) || ']0;x' as a", *ON_STORE, "--csv")

    assert said.out == f"a\n{text}\n"


def test_only_the_tables_and_columns_in_a_statement_are_read(consistent, store, monkeypatch):
    requests = []

    def noted(store, table, request):
        requests.append(request)
        return scan(store, table, request)

    monkeypatch.setattr(datasets, "scan", noted)
    consistent("sql", COUNT, *ON_STORE)

    assert [(request.kind, request.query.columns) for request in requests] == [("versions", ("handler",))]


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("select sum(version) from v", 7),
        ("select sum(version)::hugeint * 10**18::hugeint from v", 7 * 10**18),
        ("select 170141183460469231731687303715884105727::hugeint", 2**127 - 1),
        ("select [sum(version), 1] from v", [7, 1]),
        ("select {'a': {'b': sum(version)}} from v", {"a": {"b": 7}}),
        ("select count(*)::uhugeint from v", 4),
        ("select 1.50::decimal(4, 2)", "1.50"),
        ("select ['nan'::double, 1, '-inf'::double]", [None, 1, None]),
        ("select map {'a': 1}", {"a": 1}),
        ("select max(now) from v", "2026-03-01T12:00:00Z"),
        ("select max(now)::varchar from versions where now < '2026-03-01 12:00:01'", "2026-03-01 12:00:00+00"),
        (r"select '\xAA\x0B'::blob", "aa0b"),
        (f"select sum(version) from v where '{GAME}' = business_id and now > timestamptz '2026-02-01 00:00:00Z'", 6),
    ],
)  # fmt: skip
def test_values_are_json_and_times_are_in_utc_on_any_machine(rows, monkeypatch, statement, expected):
    monkeypatch.setenv("TZ", "America/New_York")
    of_games = "with v as (select * from versions where handler = 'ShootingRange')"

    assert rows(f"{of_games} {statement}") == [[expected]]


def test_options_select_the_streams_to_read(rows):
    statement = "select count(*) from state"

    assert rows(statement) == [[3]]
    assert rows(statement, "--handler", "ShootingRange", "--id", GAME.upper()) == [[1]]


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
def test_fields_with_equal_names_in_sql_are_refused_as_structs(consistent, rows, store, monkeypatch, handler):
    monkeypatch.setattr(sql, "load_app", lambda _name: App(handler))

    async def see(table):
        async def ignore(_output):
            """Publish nothing."""

        await Processor(App(handler), table, ignore).process(Envelope.of("m", "Seen", '{"place": "x"}'))

    on_store(store, see)

    refused = consistent("sql", "select 1", *ON_STORE, "--handler", handler.__name__, "--app", "eyes:app")

    assert (refused.code, refused.out) == (2, "")
    assert "total and Total" in refused.err
    if handler is Eyes:
        statement = "select state::json->>'total', state::json->>'Total' from state"
        assert rows(statement, "--handler", "Eyes") == [["1", "2"]]


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
def test_files_and_extensions_need_allow_files(consistent, store, tmp_path, statement, is_allowed):
    (tmp_path / "there.csv").write_text("a,b\n1,2\n", encoding="utf-8")
    before = sorted(tmp_path.iterdir())

    refused = consistent("sql", statement, *ON_STORE)

    assert (refused.code, refused.out) == (2, "")
    assert sorted(tmp_path.iterdir()) == before
    if is_allowed:
        said = consistent("sql", statement, *ON_STORE, "--allow-files")
        assert (said.code, said.err) == (0, "")
