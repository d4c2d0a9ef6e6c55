from __future__ import annotations

import subprocess
import sys
import types

import eventstore

DESIGNED = {
    "connect",
    "Partition",
    "Stream",
    "EventData",
    "EventId",
    "Include",
    "StreamSlice",
    "StreamWriteResult",
    "RecordedEvent",
    "Shard",
}


def test_all_names_what_is_public():
    public = {
        name
        for name, value in vars(eventstore).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType) and name != "annotations"
    }

    assert set(eventstore.__all__) == public
    assert public >= DESIGNED


def test_every_error_is_public():
    from eventstore import errors

    names = {name for name, value in vars(errors).items() if isinstance(value, type)}

    assert names <= set(eventstore.__all__)


def test_importing_the_package_loads_no_backend():
    program = (
        "import sys, eventstore;"
        "loaded = [name for name in ('azure', 'aiohttp', 'sqlite3', 'msgpack', 'asyncio') if name in sys.modules];"
        "assert not loaded, loaded"
    )

    subprocess.run([sys.executable, "-c", program], check=True)
