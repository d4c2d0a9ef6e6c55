"""Nondeterministic functions of the standard library, and what a handler uses instead of each."""

from __future__ import annotations

from collections.abc import Mapping

CLOCK = "use context.now"
RANDOM = "use context.random"
GUID = "use context.new_guid()"
IO = "read data through context.capture(name, function), and publish a message for a side effect"
WAITING = "a handler does not wait; publish a message instead"

_CLOCKS = "time monotonic perf_counter process_time thread_time clock_gettime"
_LOCAL_TIME = "localtime ctime mktime tzset gmtime asctime strftime"
_DRAWS = (
    "random uniform triangular randint randrange choice choices sample shuffle gauss normalvariate lognormvariate "
    "expovariate vonmisesvariate gammavariate betavariate paretovariate weibullvariate binomialvariate getrandbits "
    "randbytes seed getstate setstate"
)
_ENVIRONMENT = (
    "getpid getppid getcwd getcwdb stat lstat access cpu_count process_cpu_count getloadavg times uname "
    "getlogin getuid geteuid getgid getegid get_terminal_size sched_getaffinity"
)

FUNCTIONS: Mapping[str, Mapping[str, str]] = {
    "time": {
        **dict.fromkeys(_CLOCKS.split(), CLOCK),
        **{f"{name}_ns": CLOCK for name in _CLOCKS.split()},
        **dict.fromkeys(_LOCAL_TIME.split(), CLOCK),
        "sleep": WAITING,
    },
    "random": dict.fromkeys(_DRAWS.split(), RANDOM),
    "secrets": dict.fromkeys(
        ["token_bytes", "token_hex", "token_urlsafe", "randbelow", "randbits", "choice"], RANDOM
    ),
    "uuid": {**dict.fromkeys(["uuid1", "uuid4", "uuid6", "uuid7"], GUID), "getnode": IO},
    "os": {"urandom": RANDOM, "getrandom": RANDOM, **dict.fromkeys(_ENVIRONMENT.split(), IO)},
    "platform": dict.fromkeys(
        ["node", "platform", "uname", "system", "release", "version", "machine", "processor"], IO
    ),
}
"""Functions by module, each with what to use instead; those that this version of Python lacks are skipped."""

PURE_WITH: Mapping[str, int] = {"time.gmtime": 1, "time.asctime": 1, "time.strftime": 2}
"""The number of arguments that make a function pure: it then gets the time as an argument."""

_EVENT_FAMILIES = (
    "open os socket subprocess sqlite3 urllib http ftplib imaplib nntplib poplib smtplib telnetlib shutil tempfile "
    "glob pathlib pty fcntl mmap syslog webbrowser winreg msvcrt _thread"
)
EVENT_FAMILIES = frozenset(_EVENT_FAMILIES.split())
"""The first parts, up to the dot, of the names of audit events of I/O."""

EVENTS: Mapping[str, str] = {"builtins.input": IO, "time.sleep": WAITING}
"""Further audit events, each with what to do instead; not every version of Python has all of them."""

_EXEMPT = (
    "importlib _frozen_importlib _frozen_importlib_external zipimport logging warnings linecache traceback "
    "zoneinfo"
)
EXEMPT = frozenset(_EXEMPT.split())
"""Modules that may call all of these for a handler, as its result does not depend on it."""
