"""`consistent explore` answers on this machine until it is stopped, to requests with its token."""

import asyncio
import json
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from eventstore import drive
from runtime.batch_options import TablePlace
from runtime.cli.commands import explore
from runtime.cli.failures import NotPossibleError
from runtime.dead_letters import Selection, find_letters
from tests.support.explored import TABLE, played

REPOSITORY = Path(__file__).parents[4]


@pytest.fixture
def explored(tmp_path):
    return played(tmp_path, games=2, nights=1, shots=4)


def test_the_printed_url_opens_the_pages_until_ctrl_c(explored):
    place = ["--store", explored.url, "--table", TABLE, "--port", "0", "--app", "samples.shooting_range:app"]
    with subprocess.Popen(
        [sys.executable, "-m", "runtime", "explore", *place],
        cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        process.stdout.readline()
        url = process.stdout.readline().strip()
        assert urlsplit(url).hostname == "127.0.0.1"
        try:
            with httpx.Client(follow_redirects=True) as client:
                page = client.get(url)
        finally:
            process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)

    assert (page.status_code, "<h1>Overview</h1>" in page.text) == (200, True)
    assert (process.returncode, said) == (0, "")


def test_a_port_in_use_and_a_missing_table_are_refused(consistent, explored):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        said = consistent("explore", "--store", explored.url, "--table", TABLE, "--port", port)

    assert (said.code, f"Port {port} is in use" in said.err) == (1, True)
    assert consistent("explore", "--store", "sqlite:///none.db", "--table", TABLE).code == 1


def test_a_redrive_has_the_environment_of_the_project_file(consistent, explored, monkeypatch, tmp_path):
    async def redrive(explorer, _):
        await explorer["redrive"]([])

    chosen = []
    monkeypatch.setattr("runtime.explore.Explorer", lambda *_, **given: given)
    monkeypatch.setattr(explore, "_serve", redrive)
    monkeypatch.setattr(
        asyncio, "create_subprocess_exec", lambda *_, env, **__: chosen.append(env["CONSISTENT_ENV"])
    )
    (tmp_path / "consistent.toml").write_text(f'[env.prod]\nstore = "{explored.url}"\ntable = "{TABLE}"\n')

    consistent("explore", "--env", "prod", "--app", "samples.shooting_range:app", "--out", "o", "--port", "0")

    assert chosen == ["prod"]


def test_a_redrive_is_a_command_whose_arguments_hold_no_secret(explored, monkeypatch):
    """Other users of the machine see the arguments of a process, but not its environment."""

    async def first():
        return await anext(find_letters(explored.table, Selection(handler="ShootingRange")))

    found, called = drive(first()), []

    class Process:
        returncode = 0

        async def communicate(self):
            return b"", b"it broke"

    async def begin(*command, env, **_):
        called.append((command, env, Path(command[-1]).read_text()))  # noqa: ASYNC240 - a small file
        return Process()

    monkeypatch.setattr(asyncio, "create_subprocess_exec", begin)
    place = TablePlace("postgresql://user:s3cr3t@host/db", TABLE)
    redrive = explore._redrive([found], place, "samples.shooting_range:app", "out", "prod")
    batch_id = asyncio.run(redrive)
    ((command, environment, line),) = called

    assert re.fullmatch(r"redrive-[0-9a-f]{12}", batch_id)
    assert "s3cr3t" not in " ".join(command)
    assert (environment["CONSISTENT_STORE"], environment["CONSISTENT_ENV"]) == (place.store, "prod")
    # ... and it names one dead letter, not all with its message id and reason
    assert command[-2] == "--edit"
    assert int(json.loads(line)["letter"]) == found.letter.number

    Process.returncode = 1
    with pytest.raises(NotPossibleError, match=r"The redrive failed\. it broke"):
        asyncio.run(explore._redrive([found], place, "samples.shooting_range:app", "out"))
