"""The secret of a table with keyed draws is in its rows and exports, and nothing that a command says shows it."""

from __future__ import annotations

import base64

import pytest

from eventstore import Operation
from runtime import TableSettings
from runtime.ledger.settings import KEY_BYTES, LEDGER, OF_TABLE
from tests.unit.cli.stores import TABLE, on_store

KEY = bytes(range(48, 48 + KEY_BYTES))
PLACE = ["--store", "sqlite:///store.db", "--table", TABLE]
COMMANDS = [
    ["batches"],
    ["streams"],
    ["stats"],
    ["check"],
    ["letters"],
    ["window"],
    ["policy", "list"],
    ["export", "--to", "export"],
    ["show", "LeaderBoard", "7d444840-9dc0-11d1-b245-5ffdce74fad2"],
    [
        "sql",
        "select * from state union all by name select * from versions union all by name select * from batches",
    ],
]


async def key_draws(table):
    await table.transact(LEDGER, [Operation.insert(OF_TABLE, {"DrawKey": KEY})])


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_no_command_shows_it(consistent, store, tmp_path, form):
    on_store(f"sqlite:///{tmp_path}/store.db", key_draws)

    for command in COMMANDS:
        said = consistent(*command, *PLACE, *form)
        assert said.code == 0
        for shown in (KEY.decode(), KEY.hex(), base64.b64encode(KEY).decode(), repr(KEY)[2:-1]):
            assert shown not in said.out + said.err
    assert KEY.decode() not in (tmp_path / "export" / "manifest.json").read_text()


def test_an_export_takes_it_along(consistent, store, tmp_path):
    on_store(f"sqlite:///{tmp_path}/store.db", key_draws)
    consistent("export", *PLACE, "--to", "export")
    consistent("import", "--from", "export", "--store", "sqlite:///other.db", "--table", TABLE)

    found = on_store(f"sqlite:///{tmp_path}/other.db", TableSettings.of)

    assert found.draw_key == KEY
