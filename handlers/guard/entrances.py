"""The well-known entrances of what is another thing each time: clocks, chance, the outside; and what to use instead."""

from __future__ import annotations

from collections.abc import Mapping

CLOCK = "use context.now"
CHANCE = "use context.random"
GUID = "use context.new_guid()"
OUTSIDE = "read it through context.capture(name, function), and publish a message for an effect outside"
WAITING = "a handler does not wait; publish a message instead"

_CLOCKS = "time monotonic perf_counter process_time thread_time clock_gettime"
_PLACE = "localtime ctime mktime tzset gmtime asctime strftime"
_DRAWS = (
    "random uniform triangular randint randrange choice choices sample shuffle gauss normalvariate lognormvariate "
    "expovariate vonmisesvariate gammavariate betavariate paretovariate weibullvariate binomialvariate getrandbits "
    "randbytes seed getstate setstate"
)
_SURROUNDINGS = (
    "getpid getppid getcwd getcwdb stat lstat access cpu_count process_cpu_count getloadavg times uname "
    "getlogin getuid geteuid getgid getegid get_terminal_size sched_getaffinity"
)

FUNCTIONS: Mapping[str, Mapping[str, str]] = {
    "time": {
        **dict.fromkeys(_CLOCKS.split(), CLOCK),
        **{f"{name}_ns": CLOCK for name in _CLOCKS.split()},
        **dict.fromkeys(_PLACE.split(), CLOCK),
        "sleep": WAITING,
    },
    "random": dict.fromkeys(_DRAWS.split(), CHANCE),
    "secrets": dict.fromkeys(
        ["token_bytes", "token_hex", "token_urlsafe", "randbelow", "randbits", "choice"], CHANCE
    ),
    "uuid": {**dict.fromkeys(["uuid1", "uuid4", "uuid6", "uuid7"], GUID), "getnode": OUTSIDE},
    "os": {"urandom": CHANCE, "getrandom": CHANCE, **dict.fromkeys(_SURROUNDINGS.split(), OUTSIDE)},
    "platform": dict.fromkeys(
        ["node", "platform", "uname", "system", "release", "version", "machine", "processor"], OUTSIDE
    ),
}
"""Functions by module, each with what to use instead; those that this version of Python lacks are passed over."""

PURE_WITH: Mapping[str, int] = {"time.gmtime": 1, "time.asctime": 1, "time.strftime": 2}
"""How many arguments make a function pure: it is then told the time, and does not look at the clock."""

_DEVICES = (
    "open os socket subprocess sqlite3 urllib http ftplib imaplib nntplib poplib smtplib telnetlib shutil tempfile "
    "glob pathlib pty fcntl mmap syslog webbrowser winreg msvcrt _thread"
)
DEVICES = frozenset(_DEVICES.split())
"""What audit events of I/O begin with, up to the dot."""

EVENTS: Mapping[str, str] = {"builtins.input": OUTSIDE, "time.sleep": WAITING}
"""Further audit events, each with what to do instead; not every version of Python has them all."""

_PASSING = (
    "importlib _frozen_importlib _frozen_importlib_external zipimport logging warnings linecache traceback "
    "zoneinfo"
)
PASSING = frozenset(_PASSING.split())
"""Modules that may do all this for a handler, as what it gives does not depend on it."""
