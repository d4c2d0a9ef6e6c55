"""A handler that looks at what no handler may look at, in the way that its message names."""

import builtins
import datetime as dt
import logging
import os
import pathlib
import platform
import random
import secrets
import socket
import sqlite3
import subprocess
import tempfile
import threading
import time
import urllib.request
import uuid
import warnings
import zoneinfo
from collections.abc import Callable
from datetime import UTC, date, datetime
from os import environ, urandom
from random import choice
from time import time as seconds
from typing import Any
from uuid import uuid4

from handlers import App, Context, Handler, Message, State, handles
from tests.unit.handlers.helper import age_of

HERE = pathlib.Path(__file__)
SEEN: list[str] = []


class Look(Message):
    """Look, in the way that is named."""

    house: str
    how: str


class House(State):
    """What was seen, and when."""

    looks: int = 0
    at: datetime | None = None


def imported_in_the_function() -> object:
    from datetime import datetime as clock

    return clock.now(UTC)


def now() -> datetime:
    return datetime.now(UTC)


def new_year() -> datetime:
    return datetime(2026, 1, 1, tzinfo=UTC)


def imported_module_in_the_function() -> object:
    import time as clock

    return clock.time()


def through_an_alias_of_a_function() -> float:
    return seconds()


FORBIDDEN: dict[str, tuple[Callable[[Context], Any], str, str]] = {
    "now": (lambda _: now(), "datetime.now()", "context.now"),
    "local now": (lambda _: datetime.now(), "datetime.now()", "context.now"),  # noqa: DTZ005
    "now of the module": (lambda _: dt.datetime.now(UTC), "datetime.now()", "context.now"),
    "utcnow": (lambda _: datetime.utcnow(), "datetime.utcnow()", "context.now"),  # noqa: DTZ003
    "datetime.today": (lambda _: datetime.today(), "datetime.today()", "context.now"),  # noqa: DTZ002
    "date.today": (lambda _: date.today(), "date.today()", "context.now"),  # noqa: DTZ011
    "local time zone": (lambda _: datetime.fromtimestamp(0), "datetime.fromtimestamp()", "time zone"),  # noqa: DTZ006
    "local date": (lambda _: date.fromtimestamp(0), "date.fromtimestamp()", "time zone"),  # noqa: DTZ012
    "import in the function": (lambda _: imported_in_the_function(), "datetime.now()", "context.now"),
    "module in the function": (lambda _: imported_module_in_the_function(), "time.time()", "context.now"),
    "time": (lambda _: time.time(), "time.time()", "context.now"),
    "another name": (lambda _: through_an_alias_of_a_function(), "time.time()", "context.now"),
    "monotonic": (lambda _: time.monotonic_ns(), "time.monotonic_ns()", "context.now"),
    "gmtime": (lambda _: time.gmtime(), "time.gmtime()", "context.now"),
    "gmtime of None": (lambda _: time.gmtime(None), "time.gmtime()", "context.now"),
    "strftime": (lambda _: time.strftime("%Y"), "time.strftime()", "context.now"),
    "localtime": (lambda _: time.localtime(0), "time.localtime()", "context.now"),
    "sleep": (lambda _: time.sleep(0), "time.sleep()", "does not wait"),
    "random": (lambda _: random.random(), "random.random()", "context.random"),
    "choice": (lambda _: choice([1, 2]), "random.choice()", "context.random"),
    "seed": (lambda _: random.seed(1), "random.seed()", "context.random"),
    "Random": (lambda _: random.Random(), "random.Random()", "context.random"),
    "seed again": (lambda _: random.Random(1).seed(version=2), "random.Random()", "context.random"),
    "SystemRandom": (lambda _: random.SystemRandom().random(), "random.SystemRandom()", "context.random"),
    "urandom": (lambda _: urandom(8), "os.urandom()", "context.random"),
    "token": (lambda _: secrets.token_hex(), "secrets.token_hex()", "context.random"),
    "uuid4": (lambda _: uuid4(), "uuid.uuid4()", "context.new_guid()"),
    "uuid1": (lambda _: uuid.uuid1(), "uuid.uuid1()", "context.new_guid()"),
    "environ": (lambda _: environ["PATH"], "os.environ", "context.capture("),
    "environ.get": (lambda _: os.environ.get("PATH"), "os.environ", "context.capture("),
    "in environ": (lambda _: "PATH" in os.environ, "os.environ", "context.capture("),
    "all of environ": (lambda _: dict(os.environ), "os.environ", "context.capture("),
    "getenv": (lambda _: os.getenv("PATH"), "os.getenv()", "context.capture("),
    "putenv": (lambda _: os.environ.update(LOOK="x"), "os.putenv()", "publish a message"),
    "getpid": (lambda _: os.getpid(), "os.getpid()", "context.capture("),
    "node": (lambda _: platform.node(), "platform.node()", "context.capture("),
    "open": (lambda _: open(HERE), "open()", "context.capture("),  # noqa: PTH123, SIM115
    "write": (
        lambda _: HERE.with_name("nothing").write_text(""),
        "pathlib.Path.write_text()",
        "publish a message",
    ),
    "exists": (lambda _: os.path.exists(HERE), "os.path.exists()", "context.capture("),  # noqa: PTH110
    "listdir": (lambda _: os.listdir(), "os.listdir()", "context.capture("),  # noqa: PTH208
    "temporary": (lambda _: tempfile.mkdtemp(), "tempfile.mkdtemp()", "publish a message"),
    "socket": (lambda _: socket.socket(), "socket.socket()", "context.capture("),
    "host name": (lambda _: socket.gethostname(), "socket.gethostname()", "context.capture("),
    "url": (
        lambda _: urllib.request.urlopen("http://localhost:1"),
        "urllib.request.urlopen()",
        "context.capture(",
    ),
    "process": (lambda _: subprocess.run(["true"], check=False), "subprocess.run()", "context.capture("),
    "database": (lambda _: sqlite3.connect(":memory:"), "sqlite3.connect()", "context.capture("),
    "thread": (
        lambda _: threading.Thread(target=print).start(),
        "threading.Thread.start()",
        "publish a message",
    ),
    "input": (lambda _: builtins.input(), "input()", "context.capture("),
    "helper": (lambda _: age_of(datetime(2026, 1, 1, tzinfo=UTC)), "datetime.now()", "context.now"),
}

ALLOWED: dict[str, Callable[[Context], Any]] = {
    "context": lambda given: (given.now, given.new_guid(), given.random.choice("ab"), given.headers),
    "captured": lambda context: context.capture(
        "all",
        lambda: [datetime.now(UTC).year, uuid4().hex, environ["PATH"], HERE.read_text(), random.random()],
    ),
    "published": lambda context: context.publish(Look(house="h", how="published")),
    "dates": lambda context: [
        datetime(2026, 1, 1, tzinfo=UTC) - context.now,
        datetime.fromtimestamp(0, UTC),
        datetime.fromisoformat("2026-01-01"),
        datetime.combine(date(2026, 1, 1), datetime.min.time()),
        datetime.strptime("2026", "%Y"),  # noqa: DTZ007
        date.fromisoformat("2026-01-01"),
    ],
    "zones": lambda context: context.now.astimezone(zoneinfo.ZoneInfo("Europe/Berlin")),
    "told times": lambda _: (time.strftime("%Y", time.gmtime(0)), time.asctime(time.gmtime(0))),
    "own generator": lambda _: random.Random(7).random(),
    "numbered guids": lambda _: uuid.uuid5(uuid.NAMESPACE_DNS, "x"),
    "paths": lambda _: HERE.parent / "x",
    "log": lambda _: logging.getLogger("look").warning("looked"),
    "import": lambda _: __import__("this_is_imported_now", fromlist=["x"]),
    "warning": lambda _: warnings.warn("looked", UserWarning, stacklevel=1),
}


class Onlooker(Handler[House]):
    """Looks."""

    @handles(by="house")
    def look(self, state: House, message: Look, context: Context) -> House:
        if message.how.startswith("catch "):
            return self.look_and_catch(state, message, context)
        if message.how in ALLOWED:
            ALLOWED[message.how](context)
        else:
            FORBIDDEN[message.how][0](context)
        return state.model_copy(update={"looks": state.looks + 1})

    def look_and_catch(self, state: House, message: Look, context: Context) -> House:
        try:
            FORBIDDEN[message.how.removeprefix("catch ")][0](context)
        except Exception as error:  # noqa: BLE001 - it catches what it should not
            SEEN.append(type(error).__name__)
        return state


app = App(Onlooker)


def look(app: App, how: str) -> House:
    """Return the next state of a handler that looks."""
    (route,) = app.routes("Look")
    return route.revisions[1](House(), Look(house="h", how=how), Context("Onlooker", "h", "m-1", 0))  # type: ignore[return-value]
