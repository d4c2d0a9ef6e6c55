"""`consistent show`: the objects of a table, the versions of one, and how much there is of all."""

import json
import sqlite3
from contextlib import closing
from copy import copy
from functools import partial

import pytest

from handlers import App, Context, Handler, Message, State, handles
from runtime import Envelope, Processor
from runtime.maintenance.policies import Policies, Scope
from tests.support.logs import GAME, OTHER_GAME, message_id
from tests.unit.cli.stores import NOW, TABLE, on_store

ON_STORE = ["--store", "sqlite:///store.db", "--table", "games"]


SHOW = ["show", *ON_STORE, "ShootingRange", GAME]


def test_the_same_as_json(consistent, store):
    document = consistent(*SHOW, "--json").document

    assert document["newest_version"] == 3
    assert document["kept_from"] == 1
    assert [each["version"] for each in document["versions"]] == [1, 2, 3]
    second = document["versions"][1]
    assert (second["message_id"], second["type"], second["changed"]) == (message_id(2), "FireAt", True)
    assert second["state"] == {"target_position": 40, "number_of_attempts": 1}
    assert document["state"] == document["versions"][-1]["state"]


def test_the_newest_versions_are_shown_up_to_the_limit(consistent, store):
    said = consistent(*SHOW, "--limit", "2")

    assert "The newest 2 of 3 versions" in said.out
    assert message_id(1) not in said.out
    assert [each["version"] for each in consistent(*SHOW, "--limit", "1", "--json").document["versions"]] == [
        3
    ]


@pytest.mark.parametrize(
    "which", [["--version", "2"], ["--message", message_id(2)], ["--message", message_id(2).upper()]]
)
def test_one_version_with_all_that_is_recorded(consistent, store, which):
    document = consistent(*SHOW, *which, "--json").document

    assert document["version"] == 2
    assert document["before"] == {"target_position": 40, "number_of_attempts": 0}
    assert document["after"] == {"target_position": 40, "number_of_attempts": 1}
    assert document["revision"] == 1
    assert all(len(document[name]) == 32 for name in ("fingerprint", "outputs_digest", "state_digest"))
    assert consistent(*SHOW, *which).out.count(document["fingerprint"]) == 1


def test_what_a_version_changed(consistent, store):
    document = consistent(*SHOW, "--version", "2", "--diff", "--json").document

    assert document["changes"] == [{"field": "number_of_attempts", "before": 0, "after": 1}]
    said = consistent(*SHOW, "--version", "2", "--diff").out
    assert "number_of_attempts  0       1" in said
    assert "\n\nChanges of the state\n" in said
    assert "number_of_attempts: 0 → 1" in consistent(*SHOW, "--diff").out


VALUES = {
    "nothing": (None, None),
    "yes": (True, True),
    "small": (49, 49),
    "negative": (-1, -1),
    "large": (2**64 - 1, 2**64 - 1),
    "float": (0.25, 0.25),
    "not a number": (float("nan"), {"float": "nan"}),
    "infinite": (float("-inf"), {"float": "-inf"}),
    "text": ("spring is 1", "spring is 1"),
    "number as text": ("49", "49"),
    "empty": ("", ""),
    "bytes": (b"\x00\xff", {"base64": "AP8="}),
    "list": ([1, "a", b"a", [None]], [1, "a", {"base64": "YQ=="}, [None]]),
    "tuple": ((1, 2), [1, 2]),
    "dict": ({"rate": 1.5, "of": {"day": 3}}, {"rate": 1.5, "of": {"day": 3}}),
    "dict by number": ({1: "one", "1": "text"}, {"items": [[1, "one"], ["1", "text"]]}),
}


class Asked(Message):
    about: str


class Nothing(State):
    pass


class Oracle(Handler[Nothing]):
    @handles(by="about")
    def asked(self, state: Nothing, message: Asked, context: Context) -> Nothing:
        for name, (value, _) in VALUES.items():
            context.capture(name, partial(copy, value))
        return state


@pytest.fixture
def shown(consistent, tmp_path):
    url = f"sqlite:///{tmp_path}/store.db"

    async def ask(table):
        async def published(_):
            raise AssertionError

        await Processor(App(Oracle), table, published).process(
            Envelope.of("m1", "Asked", '{"about": "weather"}')
        )

    on_store(url, ask)
    arguments = ["show", "--store", url, "--table", TABLE, "Oracle", "weather", "--version", "1"]
    return lambda *more: consistent(*arguments, *more)


def test_each_value_is_in_the_document_as_it_was_captured(shown):
    captured = shown("--json").document["captured"]

    expected = {name: value for name, (_, value) in VALUES.items()}
    assert json.dumps(captured) == json.dumps(expected)  # 1 and true are equal in Python


def test_the_document_is_json_to_the_letter(shown):
    def refused(constant):
        raise AssertionError(constant)

    assert json.loads(shown("--json").out, parse_constant=refused)


def test_people_see_the_same(shown):
    said = "".join(shown().out.split())

    for name, (_, value) in VALUES.items():
        assert "".join(f'"{name}": {json.dumps(value)}'.split()) in said


def test_a_stream_is_described_by_its_header(consistent, store):
    said = consistent("show", "ShootingRange", *ON_STORE, "--prefix", "7d44", "--json")

    (stream,) = said.document["streams"]
    assert (stream["business_id"], stream["versions"], stream["runs"]) == (GAME, 3, 1)
    assert (stream["newest"], stream["horizon"]) == ("2026-03-01T12:00:00Z", None)


def test_what_is_over_the_limit_is_said_to_be_there(consistent, store):
    said = consistent("show", *ON_STORE, "--limit", "2")

    assert said.out.count(GAME) + said.out.count(OTHER_GAME) == 2
    assert "There are more than 2 streams" in said.out
    assert consistent("show", *ON_STORE, "--limit", "2", "--json").document["more"]


def test_a_table_without_such_streams_says_so(consistent, store):
    said = consistent("show", "Nobody", *ON_STORE)

    assert (said.code, said.out) == (0, "There are no matching streams.\n")
    assert consistent("show", "Nobody", *ON_STORE, "--json").document == {
        "streams": [],
        "more": False,
    }


FIRST, _, REST = GAME.partition("-")
OF_ANOTHER = f"ShootingRange-{FIRST}"


@pytest.mark.parametrize(
    "command",
    [
        *(("show", name, REST) for name in (OF_ANOTHER, "", " ShootingRange", "Shooting.Range", "7", "É")),
        ("forget", OF_ANOTHER, REST, "--yes"),
        ("forget", OF_ANOTHER, REST, "--dry-run"),
        ("show", OF_ANOTHER),
        ("show", ""),
        ("sql", "select * from state", "--handler", OF_ANOTHER),
        ("sql", "select * from versions", "--handler", OF_ANOTHER, "--id", REST),
        ("letters", "--handler", OF_ANOTHER),
        ("letters", "--stream", f"{OF_ANOTHER}/{REST}"),
        ("letters", "discard", "--stream", f"{OF_ANOTHER}/{REST}", "--yes"),
        ("truncate", "--policy", "set", "--handler", OF_ANOTHER, "--older-than", "9d"),
        ("truncate", "--policy", "set", "--handler", OF_ANOTHER, "--stream", REST, "--hold"),
        ("truncate", "--policy", "remove", "--handler", OF_ANOTHER, "--stream", REST, "--hold"),
    ],
    ids=" ".join,
)
def test_what_is_no_handlers_name_is_refused_and_never_that_of_another(consistent, store, command):
    on_store(store, lambda table: Policies(table, NOW).change(Scope("ShootingRange", GAME), hold=True))

    def dump():
        with closing(sqlite3.connect("store.db")) as connection:
            return list(connection.iterdump())

    before = dump()
    said = consistent(*command, *ON_STORE)

    assert (said.code, said.out) == (2, "")
    assert "not a handler's name" in said.err or command[0] == "truncate"
    assert dump() == before


# How much there is of all.


def test_stats_count_what_is_there_and_what_is_unfinished(consistent, worked):
    with pytest.raises(ConnectionError):
        worked("tokens", fails=True)

    document = consistent("show", "--stats", *ON_STORE, "--quick", "--json").document

    (counted,) = document["handlers"]
    assert [counted[name] for name in ("objects", "versions", "kept", "unfinished")] == [1, 2, 1, 1]
    assert "others" not in document
    said = consistent("show", "--stats", *ON_STORE, "--quick")
    assert ["ShootingRange", "tokens", "1", "2", "1", "1", "0", "-"] in [
        line.split() for line in said.out.splitlines()
    ]


def test_stats_of_a_state_based_table(consistent, store):
    document = consistent("show", "--stats", *ON_STORE, "--json").document

    found = [(each["handler"], each["versions"], each["kept"]) for each in document["handlers"]]
    assert found == [("LeaderBoard", 2, 2), ("ShootingRange", 4, 4)]
    assert {each["oldest"] for each in document["handlers"]} == {"2026-03-01T12:00:00Z"}
    assert [each["rows"] for each in document["handlers"]] == [1, 2]
    assert document["others"] == {"rows": 0, "bytes": 0}
    assert "Others" not in consistent("show", "--stats", *ON_STORE).out
