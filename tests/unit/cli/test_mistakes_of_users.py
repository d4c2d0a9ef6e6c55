"""Mistakes that users make: each is told in one sentence that says what to do, and Spark is not started for it."""

import sys

import pytest

from runtime.cli import options as option_groups

HEAD = """
from dataclasses import dataclass

from handlers import App, Context, Handler, Message, State, handles


class Sold(Message):
    shop: str


class Sales(State):
    count: int = 0


@dataclass
class Tally:
    count: int = 0


"""
GOOD = """
class Shop(Handler[Sales]):
    @handles(by="shop")
    def sold(self, state: Sales, message: Sold, context: Context) -> Sales:
        return Sales(count=state.count + 1)


app = App(Shop)
"""
REQUIRED = {
    "--app": "shop:app",
    "--messages": "log.jsonl",
    "--store": "sqlite:///store.db",
    "--table": "shop",
    "--out": "out",
}


@pytest.fixture(autouse=True)
def folder(monkeypatch, tmp_path):
    """Give a folder with an app and a log, as a user has it, in which no Spark starts."""

    def started(*_, **__):
        pytest.fail("Spark would be started")

    monkeypatch.setattr(option_groups, "working", started)
    write(tmp_path, "shop", GOOD)
    (tmp_path / "log.jsonl").write_text("{}")
    (tmp_path / "folder").mkdir()
    for name, text in (("log.csv", "a,b"), ("array.json", "[{}]"), ("empty.jsonl", ""), ("log", "{}")):
        (tmp_path / name).write_text(text)
    yield tmp_path
    for name in ("shop", "wrong", "other"):
        sys.modules.pop(name, None)


def write(path, name, code, head=HEAD):
    (path / f"{name}.py").write_text(head + code)


def run(consistent, *more, **changed):
    given = REQUIRED | {f"--{name.replace('_', '-')}": value for name, value in changed.items()}
    return consistent("run", *(word for option in given.items() for word in option), *more)


def told(said, code, sentence):
    """Check the exit code, and that the error is one line on standard error."""
    assert sentence in said.err.splitlines()[-1], said.err
    assert said.err.splitlines()[-1].startswith("Error: ")
    assert (said.code, said.out, "Traceback" in said.err) == (code, "", False)


@pytest.mark.parametrize(
    ("before", "after", "sentence"),
    [
        ('@handles(by="shop")', "@handles", 'write @handles(by="FIELD")'),
        ('    @handles(by="shop")\n', "", "mark its methods with @handles(by=...)"),
        ('    @handles(by="shop")\n', "    @staticmethod\n", "mark its methods with @handles(by=...)"),
        ('by="shop"', 'by="store"', "Sold has no field 'store'"),
        ('by="shop"', "by=7", "takes the name of the field that holds the business id, not 7"),
        ("def sold", "async def sold", "It is async, and a handler waits for nothing: write def"),
        ("return Sales", "yield Sales", "It yields: publish by context.publish(...)"),
        (", context: Context", "", "must be a plain method (self, state, message, context)"),
        ("message: Sold", "message", "(message: SomeMessage)"),
        ("message: Sold", "message: Sold | None", "write a method for each message type"),
        ("Sales", "Tally", "write class Tally(State), with the same fields and no @dataclass"),
        ("Handler[Sales]", "Handler", "must name its state: class Shop(Handler[SomeState])"),
        ("(Handler[Sales])", "", "write class Shop(Handler[SomeState])"),
        ("App(Shop)", "App(Shop())", "write App(Shop), without brackets"),
        ("App(Shop)", "App(Shop, Shop)", "give one of them another name"),
        ("App(Shop)", "App()", "needs at least one handler"),
        (
            "app = App(Shop)",
            "app = Shop",
            "wrong:app is no App but the class Shop: make one with App(SomeHandler",
        ),
        ("app = App(Shop)", "application = App(Shop)", "has no attribute app. Its apps: application."),
        ("app = App(Shop)", "1 / 0", "ZeroDivisionError: division by zero"),
        ("app = App(Shop)", "import no_such_package", "Install it, or correct the name."),
        ("app = App(Shop)", "app = App(Shop", "SyntaxError: '(' was never closed"),
    ],
)
@pytest.mark.parametrize("command", ["run", "lint"])
def test_an_app_that_is_none(consistent, folder, command, before, after, sentence):
    assert before in GOOD
    write(folder, "wrong", GOOD.replace(before, after))

    said = run(consistent, app="wrong:app") if command == "run" else consistent("lint", "wrong:app")

    told(said, 2, sentence)


def test_modules_that_import_each_other(consistent, folder):
    write(folder, "wrong", "from other import number\n" + GOOD)
    write(folder, "other", "from wrong import app\nnumber = 1\n")

    told(
        run(consistent, app="wrong:app"),
        2,
        "Two modules import each other: move what both need into a third one.",
    )


@pytest.mark.parametrize(
    ("changed", "code", "sentence"),
    [
        ({"app": "shop"}, 2, "An app is named MODULE:ATTRIBUTE"),
        ({"app": "shop.py:app"}, 2, "write shop:ATTRIBUTE"),
        ({"app": "shp:app"}, 2, "There is no module shp"),
        ({"messages": "lgo.jsonl"}, 1, "There is no log at lgo.jsonl"),
        ({"messages": ""}, 2, "--messages is empty"),
        ({"messages": "folder"}, 1, "The log at folder holds no parquet files"),
        ({"messages": "log.csv"}, 1, "log.csv is no Parquet"),
        ({"messages": "empty.jsonl"}, 1, "holds no messages"),
        ({"messages": "log"}, 1, "log is no Parquet. If it holds JSON lines, say --format json."),
        ({"format": "parquet"}, 1, "log.jsonl is no Parquet"),
        ({"format": "jsno"}, 2, "'jsno' is not one of 'parquet', 'json'"),
        ({"store": "nowhere"}, 2, "The store url has none of the forms that are known: sqlite:///"),
        ({"store": "sqlite://store.db"}, 2, "write sqlite:///relative.db"),
        ({"store": "sqlite:///folder"}, 2, "cannot be used as a store"),
        ({"table": "my-table"}, 2, "it must be 3 to 63 ASCII letters and digits"),
        ({"out": "log.jsonl"}, 1, "Choose another --out."),
        ({"out": "out*"}, 2, "a pattern to Spark"),
        ({"master": "nonsense"}, 2, "'nonsense' is no master of Spark: write local[*]"),
        ({"master": "local[x]"}, 2, "'local[x]' is no master of Spark"),
        ({"remote": "host:15002"}, 2, "'host:15002' is no url of Spark Connect: write sc://HOST:PORT"),
        ({"master": "yarn"}, 2, "use a local master, or a store on the network"),
        ({"source": "a:b"}, 2, "--source a:b holds a colon, which ends the name in an id"),
        ({"keep_large": "log.jsonl"}, 1, "log.jsonl is a file. Choose another --keep-large."),
        ({"publish": "nowhere"}, 2, "A target is sqlite:///FILE, postgresql://"),
        (
            {"handler_timeout": "0s"},
            2,
            "The time that a handler may take (handler_timeout) is more than none.",
        ),
        ({"partitions": "0"}, 2, "greater than or equal to 1"),
        ({"max_dead_letters": "lots"}, 2, "write one such as 10, or a share such as 0.5%"),
        ({"batch_id": "a/b"}, 1, "is not usable"),
        ({"log_file": "folder"}, 2, "'folder' is a directory"),
    ],
)
def test_an_option_that_cannot_be(consistent, changed, code, sentence):
    told(run(consistent, **changed), code, sentence)


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (
            ["--messages", "b"],
            "--messages is given 2 times, and takes one value. A log may be a folder, or a pattern",
        ),
        (["--ouput", "other"], "No such option: --ouput"),
        (["extra"], "unexpected extra argument"),
        (["--strict"], "Say with --max-dead-letters"),
    ],
)
def test_what_is_typed_too_much(consistent, more, sentence):
    told(run(consistent, *more), 2, sentence)


def test_of_other_options_the_last_value_counts(consistent):
    told(
        run(consistent, "--table", "g", "--table", "my-table"), 2, "The table name 'my-table' cannot be used"
    )
