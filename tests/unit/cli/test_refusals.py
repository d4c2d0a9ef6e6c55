"""What cannot be done is refused in one sentence before Spark starts, and nothing is written.

Exit code 2 is for usage errors, 1 for a valid command that cannot be carried out.
"""

import shlex
import sqlite3
from contextlib import closing

import pytest

from runtime.cli import options
from runtime.ledger.ledger import Ledger
from tests.support.logs import GAME
from tests.unit.cli.stores import NOW, ON_STORE, on_store

SAMPLE = ["--app", "samples.shooting_range:app"]
LOG = ["--messages", "log.jsonl"]
RUN = ["run", *SAMPLE, *LOG, *ON_STORE, "--out", "out"]
VERIFY = ["verify", *SAMPLE, *LOG, *ON_STORE]
LOOKS = [
    ["show"],
    ["batches"],
    ["show", "ShootingRange", "g1"],
    ["show", "--stats"],
    ["truncate", "--older-than", "7d", "--yes"],
    ["truncate", "--older-than", "7d", "--dry-run"],
    ["verify", *SAMPLE, *LOG],
]


@pytest.fixture(autouse=True)
def folder(monkeypatch, tmp_path):
    """Make a folder with logs, in which Spark must not start."""
    monkeypatch.setattr(options, "working", lambda *_, **__: pytest.fail("Spark would be started"))
    (tmp_path / "folder").mkdir()
    for name, text in (("log.jsonl", "{}"), ("log.csv", "a,b"), ("empty.jsonl", ""), ("log", "{}")):
        (tmp_path / name).write_text(text)


def told(said, code, sentence):
    """Check the exit code, and that the error is one line on standard error."""
    last = said.err.splitlines()[-1]
    assert sentence in last, said.err
    assert last.startswith("Error: ")
    assert (said.code, said.out, "Traceback" in said.err) == (code, "", False)


def refusal(line):
    """Return exit code, part of the sentence and words of a command, as a line of a table below has them."""
    command, _, refused = line.partition(" => ")
    code, _, sentence = refused.partition(" ")
    words = shlex.split(command.replace("GAME", GAME))
    return int(code), sentence, [each for word in words for each in WORDS.get(word, [word])]


def tables(path):
    with sqlite3.connect(path) as file:
        return {name for (name,) in file.execute("select name from sqlite_master where type = 'table'")}


CANNOT_BEGIN = """
--app shop                       => 2 An app is named MODULE:ATTRIBUTE
--app shop.py:app                => 2 not its file name: shop:ATTRIBUTE
--app shp:app                    => 2 There is no module shp
--messages b                     => 2 --messages is given 2 times, but takes one value. A log may be a folder, or
--format parquet                 => 1 log.jsonl is not Parquet
--store nowhere                  => 2 The form of the store URL is unknown. Known are: sqlite:///
--store sqlite:///stor.db --must-exist => 1 There is no table games in sqlite:///stor.db.
--table my-table                 => 2 it must be 3 to 63 ASCII letters and digits
--table gmes --must-exist        => 1 There is no table gmes in sqlite:///store.db.
--out log.jsonl                  => 1 Outcomes cannot be written to log.jsonl:
--out log.jsonl/a:b              => 1 Outcomes cannot be written to log.jsonl/a:b
--out 'out*'                     => 2 in its name are a pattern
--master nonsense                => 2 'nonsense' is not a Spark master: use local[*]
--remote host:15002              => 2 'host:15002' is not a Spark Connect URL: use sc://HOST:PORT
--master yarn                    => 2 use a local master, or a store on the network
--source a:b                     => 2 --source a:b has a colon, which separates it from the message id
--keep-large log.jsonl           => 1 log.jsonl is a file. Use another --keep-large.
--publish nowhere                => 2 Use sqlite:///FILE, postgresql://
--rate 5                         => 2 --rate needs --publish URL.
--max-dead-letters lots          => 2 use a number such as 10, or a share such as 0.5%
--strict                         => 2 --strict needs --max-dead-letters
--algorithm outbox               => 1 The table was processed with the algorithm state-based
--batch-id given-up              => 1 Batch given-up was abandoned
--batch-id begun --out elsewhere => 1 Batch begun has outcomes in
--ouput other                    => 2 No such option: --ouput
extra                            => 2 unexpected extra argument
"""


@pytest.mark.parametrize("line", CANNOT_BEGIN.strip().splitlines())
def test_a_batch_that_cannot_begin(consistent, store, tmp_path, line):
    async def begin(table):
        ledger = Ledger(table, NOW)
        await ledger.begin("given-up", "input", str(tmp_path / "out"))
        await ledger.abandon("given-up")
        await ledger.commit_round(await ledger.begin("begun", "input", str(tmp_path / "out")), 0, {}, 0)

    on_store(store, begin)
    before = tables(tmp_path / "store.db")

    code, sentence, options = refusal(line)
    told(consistent(*RUN, *options), code, sentence)

    assert tables(tmp_path / "store.db") == before
    assert not (tmp_path / "stor.db").exists()


@pytest.mark.parametrize(
    ("log", "code", "sentence"),
    [
        ("lgo.jsonl", 1, "There is no log at lgo.jsonl."),
        ("", 2, "--messages"),
        ("folder", 1, "The log at folder holds no parquet files"),
        ("log.csv", 1, "log.csv is not Parquet"),
        ("empty.jsonl", 1, "holds no messages"),
        ("log", 1, "log is not Parquet. If it holds JSON lines, set --format json."),
    ],
)
@pytest.mark.parametrize("command", [RUN, VERIFY])
def test_a_log_that_is_none(consistent, store, command, log, code, sentence):
    told(consistent(*(log if word == "log.jsonl" else word for word in command)), code, sentence)


REFUSED = """
nothing                                            => 2 No such command
tokens issue ON                                    => 2 use `consistent tokens`
deliver ON                                         => 2 use `consistent publish`
sweep ON                                           => 2 use `consistent truncate --only documents`
show                                               => 2 --store
show --store sqlite:///store.db                    => 2 --table
show ON --limit -1                                 => 2 --limit
show ON ShootingRange 1                            => 1 There is no stream of ShootingRange for 1
show ON ShootingRange 1 --version 1 --message m    => 2 --version and --message exclude each other
show ON ShootingRange --version 1                  => 2 --diff need HANDLER and BUSINESS_ID
show ON ShootingRange --stats                      => 2 omit HANDLER, --prefix
show ON ShootingRange GAME --version 4             => 1 There is no version 4: the newest is 3.
show ON ShootingRange GAME --message m9            => 1 Message m9 made none of the versions kept.
sql ON 'select * from outputs'                     => 2 --out
sql ON 'select * from outputs' --out nowhere       => 1 --out
sql ON @windows                                    => 2 use one of @window, @stats
sql ON selec                                       => 2 failed: Parser Error: syntax error at or near "selec"
sql ON 'select nothing from versions'              => 2 The statement failed: Binder Error: Referenced column
sql ON 'select 1' --as-of noon                     => 2 'noon' is not a valid time. Use a datetime, or text such as 2026
sql ON 'select * from state' --batch-id b          => 1 There is no batch b:
sql ON 'select * from datasets'                    => 2 The statement failed: Catalog Error: Table with name
sql ON "select 'infinity'::timestamp"              => 2 The result has a timestamp
sql ON 'select 1' APP                              => 2 An app needs a handler
sql ON 'select 1' APP --handler X                  => 2 The app has no handler X
sql ON 'select 1' --json --csv                     => 2 --json and --csv exclude each other
sql ON '/* nothing */'                             => 2 statement
sql ON 'select 1; select 2'                        => 2 statement
sql ON 'set threads = 1; select 1'                 => 2 statement
sql ON 'from state;;from state'                    => 2 statement
batches ON --abandon b7                            => 1 There is no batch b7
batches ON --prune 30d --abandon b1                => 2 --prune and --abandon exclude each other
batches ON --dry-run                               => 2 add one of the two
letters ON --stream ShootingRange                  => 2 use HANDLER/BUSINESS_ID
letters discard ON                                 => 2 Select dead letters with --message ID, --reason R,
letters redrive ON APP --out out                   => 2 Select dead letters with --message ID, --reason R,
letters redrive ON APP --out out --batch-id typo   => 2 Select dead letters with --message ID, --reason R,
letters redrive ON APP --out out --batch-id b1 --algorithm outbox => 1 processed with the algorithm state-based
truncate ON                                        => 2 There are no retention rules: add --older-than AGE
truncate ON --older-than 3h                        => 2 --allow-young
truncate ON --older-than 7d                        => 2 confirm with --yes, or try --dry-run first
truncate ON --handler ShootingRange --keep-last 1  => 2 need --policy set or remove
truncate ON --older-than 9d --only documents       => 2 --documents is missing
truncate ON --older-than 9d --only ids             => 2 use --algorithm
truncate ON APP --older-than 9d --algorithm tokens => 2 Only the algorithms outbox and
truncate ON APP --algorithm outbox --only versions => 2 Only the algorithm state-based has versions
truncate ON APP --algorithm outbox                 => 2 needs --app and --older-than AGE
truncate ON --algorithm outbox --older-than 9d     => 2 needs --app and --older-than AGE
truncate ON APP --algorithm outbox --older-than 0s => 2 --allow-young
truncate ON APP --algorithm outbox --older-than 9d --keep-last 1 => 2 Ids have only the rule --older-than
truncate ON APP --algorithm outbox --older-than 9d => 1 processed with the algorithm state-based (batch b1)
truncate ON APP --algorithm outbox --older-than 9d --auxiliary-table x => 2 with outbox
truncate ON APP --algorithm deduplication-store --older-than 9d --auxiliary-store sqlite:///no.db => 1 no store
letters nothing ON                                 => 2 one of list, redrive, discard
truncate ON --policy list --handler ShootingRange  => 2 --policy list lists all
truncate ON --policy remove --keep-last 1          => 2 --policy remove takes no rules
truncate ON --policy set --keep-last 1 --take-over => 2 omit --take-over
show ON ShootingRange GAME --prefix z              => 2 omit BUSINESS_ID or --prefix
show ON ShootingRange --master local[2]            => 2 --log-file need --stats
truncate ON --policy list --only ids               => 2 --policy cleans nothing up: omit --only
show ON --quick                                    => 2 --quick needs --stats
truncate ON --policy set                           => 2 --older-than AGE or --keep-last N, or --hold
truncate ON --policy set --older-than 3h           => 2 Versions younger than 24h are kept
truncate ON --policy set --stream 7 --hold         => 2 --stream needs --handler
truncate ON --policy set --handler Typo --hold     => 2 The table has nothing of Typo
truncate ON --policy set --handler ShootingRange --stream 7 --hold => 2 The table has nothing of ShootingRange 7
truncate ON --policy set --older-than 9d --dry-run => 2 omit --dry-run
truncate ON --policy remove                        => 2 There are no rules for the table
truncate ON --policy remove --handler ShootingRange --stream 7 --hold => 2 There is no hold for ShootingRange 7
forget ShootingRange GAME ON --json                => 2 confirm with --yes, or try --dry-run first
forget ShootingRange nobody ON --yes               => 1 contains nothing of ShootingRange nobody
forget ShootingRange GAME nobody ON --yes --json   => 1 ShootingRange nobody. Nothing was
forget Nobody GAME ON --yes                        => 1 contains nothing of Nobody
forget ShootingRange ON --yes                      => 2 BUSINESS_ID
forget ShootingRange GAME ON --yes --out no        => 2 does not exist
forget ShootingRange GAME ON --yes --auxiliary-table others => 1 There is no table others
forget A b --store sqlite:///no.db --table games   => 1 There is no store
fork A b ON --case c.json --messages kafka://u:hunter2@h/t => 2 not topics of Kafka
run ON APP LOG                                     => 2 --out
run ON APP LOG --out out --algorithm outbox --late process => 2 late and on_difference need
run ON APP LOG --out out --auxiliary-table other    => 2 tokens have an auxiliary store: omit it with state-based
run ON APP LOG --out out --algorithm outbox --documents x => 2 Only the algorithm state-based uses a document store
run ON APP LOG --out out --remote sc://far.away    => 2 workers of sc://far.away may run on others
run ON APP --out out --unfinished 1h               => 2 The state-based algorithm stores no outputs to sweep
run ON APP --out out --unfinished 1h LOG           => 2 either --messages LOG or --unfinished AGE
run ON APP --out out --unfinished 1h --algorithm outbox => 1 processed with the algorithm state-based (batch b1)
run APP --store sqlite:///no.db --table games --out out --unfinished 1h --algorithm outbox => 1 There is no table games
reprocess ON APP --into a --out b --messages log.jsonl,kafka://u:p@h/t => 2 Topics of Kafka must be the only log
verify ON APP                                      => 2 --messages
verify ON APP LOG --sample 0                       => 2 greater than 0 and at most 1
verify ON APP LOG --master spark://host:7077       => 2 SQLite
check ON --master spark://host:7077                => 2 SQLite
lint runtime.clock                                 => 2 There is no handler in runtime.clock
outcomes --out foo://bucket/out                    => 2 Use a path, a URL that pyarrow supports, or install fsspec
outcomes --out foo://me:hunter2@bucket             => 2 The folder foo://me:...@bucket cannot be opened
outcomes --out log.jsonl                           => 1 log.jsonl is a file: use the folder of the outcomes
outcomes --out nowhere => 1 There are no outcomes in nowhere: `consistent run --out nowhere` writes them.
outcomes --out folder --batch-id b                 => 1 There are no outcomes of batch b in folder
letters ON --export no/x.jsonl                     => 1 no/x.jsonl cannot be written: there is no folder no.
demo --log-only store.db                           => 1 exists: remove it
demo --games 3 --messages 40                       => 2 need --log-only LOG
"""
WORDS = {"ON": ON_STORE, "APP": SAMPLE, "LOG": LOG}


@pytest.mark.parametrize("line", REFUSED.strip().splitlines())
def test_what_other_commands_refuse(consistent, store, tmp_path, line):
    on_store(store, lambda table: Ledger(table, NOW).begin("b1", "some input", "out"))
    code, sentence, command = refusal(line)
    before = contents(tmp_path)

    told(consistent(*command), code, sentence)

    assert contents(tmp_path) == before


def contents(folder):
    """Return the names of the files, and all that the store holds."""
    names = {path.name for path in folder.rglob("*") if not path.name.startswith(("store.db-", "."))}
    with closing(sqlite3.connect(folder / "store.db")) as file:
        return names, list(file.iterdump())


@pytest.mark.parametrize("command", LOOKS)
def test_looking_at_a_table_makes_neither_it_nor_its_store(consistent, store, tmp_path, command):
    before = tables(tmp_path / "store.db")

    no_table = consistent(*command, "--store", "sqlite:///store.db", "--table", "gmes")
    no_store = consistent(*command, "--store", "sqlite:///stor.db", "--table", "games")

    told(no_table, 1, "There is no table gmes in sqlite:///store.db.")
    told(no_store, 1, f"There is no store at {tmp_path}/stor.db")
    assert tables(tmp_path / "store.db") == before
    assert not (tmp_path / "stor.db").exists()


NO_STREAM = """
--source nowhere         => There is no folder nowhere: --source must be the folder that receives the files.
--source 'folder*'       => is a pattern.
--out folder/out         => --out folder/out is inside --source folder
--checkpoint folder/c    => use another --checkpoint
--checkpoint log/c       => The checkpoint cannot be written to log/c:
--trigger 5s             => --trigger and --available-now exclude each other
--query 'a b'            => is invalid
--compact-after 0        => '--compact-after'
--types Fire             => FireAt, Hit
--publish ftp://x        => not a valid target. Use sqlite:///FILE
--map Hit=hits           => --map needs --publish URL.
"""


@pytest.mark.parametrize("line", NO_STREAM.strip().splitlines())
def test_a_stream_that_cannot_begin(consistent, line):
    asked, _, sentence = line.partition(" => ")
    option, value = shlex.split(asked)
    given = {"--source": "folder", "--query": "shots", "--checkpoint": "checkpoint", "--out": "out"}
    words = [word for pair in {**given, option: value}.items() for word in pair]

    said = consistent("stream", *SAMPLE, *ON_STORE, *words, "--format", "json", "--available-now")

    assert said.code in (1, 2)
    assert sentence in said.err
    assert "Traceback" not in said.err
