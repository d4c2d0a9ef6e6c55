"""`consistent show`: the objects of a table, the versions of one, and the counts of all."""

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
from tests.unit.cli.stores import NOW, ON_STORE, on_store

SHOW = ["show", *ON_STORE, "ShootingRange", GAME]


def test_the_versions_of_an_object_are_shown_with_their_states(consistent, store):
    document = consistent(*SHOW, "--json").document

    assert (document["newest_version"], document["kept_from"]) == (3, 1)
    assert [each["version"] for each in document["versions"]] == [1, 2, 3]
    second = document["versions"][1]
    assert (second["message_id"], second["type"], second["changed"]) == (message_id(2), "FireAt", True)
    assert second["state"] == {"target_position": 40, "number_of_attempts": 1}
    assert document["state"] == document["versions"][-1]["state"]
    limited = consistent(*SHOW, "--limit", "2").out
    assert "The newest 2 of 3 versions" in limited
    assert message_id(1) not in limited


@pytest.mark.parametrize(
    "which", [["--version", "2"], ["--message", message_id(2)], ["--message", message_id(2).upper()]]
)
def test_one_version_is_shown_with_all_recorded_data(consistent, store, which):
    document = consistent(*SHOW, *which, "--json").document

    assert (document["version"], document["revision"]) == (2, 1)
    assert document["before"] == {"target_position": 40, "number_of_attempts": 0}
    assert document["after"] == {"target_position": 40, "number_of_attempts": 1}
    assert all(len(document[name]) == 32 for name in ("fingerprint", "outputs_digest", "state_digest"))
    assert consistent(*SHOW, *which).out.count(document["fingerprint"]) == 1


def test_the_changes_of_a_version_are_shown(consistent, store):
    document = consistent(*SHOW, "--version", "2", "--diff", "--json").document

    assert document["changes"] == [{"field": "number_of_attempts", "before": 0, "after": 1}]
    said = consistent(*SHOW, "--version", "2", "--diff").out
    assert "\n\nChanges of the state\n" in said
    assert "number_of_attempts  0       1" in said
    assert "number_of_attempts: 0 → 1" in consistent(*SHOW, "--diff").out


VALUES = {
    "nothing": (None, None),
    "yes": (True, True),
    "large": (2**64 - 1, 2**64 - 1),
    "float": (0.25, 0.25),
    "not a number": (float("nan"), {"float": "nan"}),
    "infinite": (float("-inf"), {"float": "-inf"}),
    "number as text": ("49", "49"),
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


def test_captured_values_are_valid_json_and_readable(consistent, store):
    async def ask(table):
        async def published(_):
            raise AssertionError

        message = Envelope.of("m1", "Asked", '{"about": "weather"}')
        await Processor(App(Oracle), table, published).process(message)

    def refused(constant):
        raise AssertionError(constant)

    on_store(store, ask)
    shown = consistent("show", *ON_STORE, "Oracle", "weather", "--version", "1", "--json").out
    captured = json.loads(shown, parse_constant=refused)["captured"]
    expected = {name: value for name, (_, value) in VALUES.items()}
    assert json.dumps(captured) == json.dumps(expected)  # 1 and true are equal in Python

    said = "".join(consistent("show", *ON_STORE, "Oracle", "weather", "--version", "1").out.split())
    for name, value in expected.items():
        assert "".join(f'"{name}": {json.dumps(value)}'.split()) in said


def test_streams_are_listed_up_to_the_limit(consistent, store):
    (stream,) = consistent("show", "ShootingRange", *ON_STORE, "--prefix", "7d44", "--json").document[
        "streams"
    ]
    assert (stream["business_id"], stream["versions"], stream["runs"]) == (GAME, 3, 1)
    assert (stream["newest"], stream["horizon"]) == ("2026-03-01T12:00:00Z", None)

    said = consistent("show", *ON_STORE, "--limit", "2")
    assert said.out.count(GAME) + said.out.count(OTHER_GAME) == 2
    assert "There are more than 2 streams" in said.out
    assert consistent("show", *ON_STORE, "--limit", "2", "--json").document["more"]

    nothing = consistent("show", "Nobody", *ON_STORE)
    assert (nothing.code, nothing.out) == (0, "There are no matching streams.\n")


FIRST, _, REST = GAME.partition("-")
OF_ANOTHER = f"ShootingRange-{FIRST}"


@pytest.mark.parametrize(
    "command",
    [
        *(("show", name, REST) for name in (OF_ANOTHER, "", " ShootingRange", "Shooting.Range", "7", "É")),
        ("forget", OF_ANOTHER, REST, "--yes"),
        ("show", OF_ANOTHER),
        ("sql", "select * from state", "--handler", OF_ANOTHER),
        ("sql", "select * from versions", "--handler", OF_ANOTHER, "--id", REST),
        ("letters", "--handler", OF_ANOTHER),
        ("letters", "discard", "--stream", f"{OF_ANOTHER}/{REST}", "--yes"),
        ("truncate", "--policy", "set", "--handler", OF_ANOTHER, "--older-than", "9d"),
        ("truncate", "--policy", "remove", "--handler", OF_ANOTHER, "--stream", REST, "--hold"),
    ],
    ids=" ".join,
)
def test_an_invalid_handler_name_is_refused_and_never_that_of_another_stream(consistent, store, command):
    on_store(store, lambda table: Policies(table, NOW).change(Scope("ShootingRange", GAME), hold=True))

    def dump():
        with closing(sqlite3.connect("store.db")) as connection:
            return list(connection.iterdump())

    before = dump()
    said = consistent(*command, *ON_STORE)

    assert (said.code, said.out) == (2, "")
    assert "not a handler's name" in said.err or command[0] == "truncate"
    assert dump() == before


def test_stats_count_contents_and_unfinished_messages(consistent, worked):
    with pytest.raises(ConnectionError):
        worked("tokens", fails=True)

    document = consistent("show", "--stats", *ON_STORE, "--quick", "--json").document

    (counted,) = document["handlers"]
    assert [counted[name] for name in ("objects", "versions", "kept", "unfinished")] == [1, 2, 1, 1]
    assert "others" not in document
    lines = [line.split() for line in consistent("show", "--stats", *ON_STORE, "--quick").out.splitlines()]
    assert ["ShootingRange", "tokens", "1", "2", "1", "1", "0", "-"] in lines


def test_stats_of_a_state_based_table(consistent, store):
    document = consistent("show", "--stats", *ON_STORE, "--json").document

    found = [(each["handler"], each["versions"], each["kept"], each["rows"]) for each in document["handlers"]]
    assert found == [("LeaderBoard", 2, 2, 1), ("ShootingRange", 4, 4, 2)]
    assert {each["oldest"] for each in document["handlers"]} == {"2026-03-01T12:00:00Z"}
    assert document["others"] == {"rows": 0, "bytes": 0}
    assert "Others" not in consistent("show", "--stats", *ON_STORE).out
