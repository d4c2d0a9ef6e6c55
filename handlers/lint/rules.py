"""The rules: what a handler must not use, why, and what to use instead."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from handlers.lint.source import shown

_CAPTURE = "context.capture(name, function)"


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule. The first digit of its code is its group; a note is shown, and does not count as a finding."""

    code: str
    name: str
    why: str
    instead: str
    is_note: bool = False


_ALL = (
    Rule("CM101", "wall clock", "a replay reads another time", "context.now"),
    Rule("CM102", "process clock", "it starts at another value in each process",
         f"context.now, or {_CAPTURE} for a measurement"),
    Rule("CM103", "local time zone", "it may differ between machines", "an explicit time zone, such as UTC"),
    Rule("CM104", "waiting", "it delays all later messages, and depends on the clock",
         "a message that says when it is due, and context.now"),
    Rule("CM201", "random numbers", "a replay draws other numbers", "context.random"),
    Rule("CM202", "secrets", "a replay draws other ones",
         f"context.random, or {_CAPTURE} for what must be unpredictable"),
    Rule("CM203", "guids", "a replay makes another one", "context.new_guid()"),
    Rule("CM204", "random numbers of a library", "a replay draws other numbers",
         "context.random, or the library's generator seeded with context.random.getrandbits(64)"),
    Rule("CM205", "shared random generator", "its numbers depend on what was drawn before",
         "context.random, or a generator created and seeded in the handler"),
    Rule("CM206", "foreseeable draws", "whoever chooses message ids can compute them",
         "keyed draws (--draws keyed) where senders are not trusted", is_note=True),
    Rule("CM301", "environment variables", "they may differ between processes", _CAPTURE),
    Rule("CM302", "process information", "it differs between processes", _CAPTURE),
    Rule("CM303", "machine information", "it differs between machines", _CAPTURE),
    Rule("CM304", "locale", "it may differ between machines", "an explicit format"),
    Rule("CM401", "files", "their content changes, and differs between machines", _CAPTURE),
    Rule("CM402", "network", "a replay may get another answer, or none",
         f"{_CAPTURE}, or a message to whoever calls the service"),
    Rule("CM403", "other programs", "a replay runs them again, and may get another result",
         f"{_CAPTURE}, or a message to whoever runs the program"),
    Rule("CM404", "databases", "a replay may read other data, and writes again",
         f"the state, a message, or {_CAPTURE}"),
    Rule("CM405", "console input", "a replay gets no input, or another one", "a field of the message"),
    Rule("CM501", "threads and processes", "their order of execution is not deterministic", "sequential code"),
    Rule("CM502", "asynchronous code", "its order of execution is not deterministic", "sequential code"),
    Rule("CM601", "object identity", "it is a memory address", "a field that names the object, or context.new_guid()"),
    Rule("CM602", "hash", "the hashes of str and bytes differ between processes", "hashlib, or the value itself"),
    Rule("CM603", "memory", "its layout differs between processes", "plain values"),
    Rule("CM701", "order of a set", "it differs between processes", "sorted(...)"),
    Rule("CM702", "arbitrary member of a set", "which one differs between processes", "min(...), or sorted(...)[0]"),
    Rule("CM703", "text of a set", "the order of its members differs between processes", "sorted(...)"),
    Rule("CM704", "float sum over a set", "its rounding depends on the order of the members",
         "math.fsum(...), or Decimal"),
    Rule("CM705", "ties in a set", "of members with equal keys the first is taken, and their order differs",
         "a key that ends in the member itself: key=lambda each: (each.score, each.name)"),
    Rule("CM801", "module state", "it differs between processes, and a restart loses it", "a field of the state"),
    Rule("CM802", "class or handler state", "it differs between processes, and a restart loses it",
         "a field of the state"),
    Rule("CM803", "mutable default argument", "all calls share it", "None as the default"),
    Rule("CM804", "cached results", "they may depend on earlier messages", "the plain function, or a local variable"),
    Rule("CM805", "process settings", "all handlers of the process share them",
         "arguments; for decimals decimal.Context(prec=...)"),
    Rule("CM806", "mutated state", "the given state is the version before, which must not change",
         "state.model_copy(update=...)"),
    Rule("CM807", "mutated message", "a replay must get the same message", "a local variable"),
    Rule("CM808", "mutable module state", "earlier messages may have changed it", f"the state, or {_CAPTURE}"),
    Rule("CM901", "not followed", "the source does not tell what is called", "a name that stands in the source",
         is_note=True),
    Rule("CM902", "noqa without a reason", "nobody can tell why it is allowed here", "# noqa: CODE and the reason"),
    Rule("CM903", "unused noqa", "it would hide later findings", "the line without it"),
)  # fmt: skip

RULES: Mapping[str, Rule] = MappingProxyType({rule.code: rule for rule in _ALL})


_LONGEST_EXCERPT = 60


@dataclass(frozen=True, slots=True)
class Finding:
    """A place that breaks a rule.

    `line` and `column` count from 1. `what` is the offending source or name, and `chain` the calls that lead there
    from a handler's method.
    """

    path: Path
    line: int
    column: int
    code: str
    what: str
    chain: tuple[str, ...] = ()

    @property
    def rule(self) -> Rule:
        """The rule that is broken."""
        return RULES[self.code]

    def __str__(self) -> str:
        rule = self.rule
        way = f" ({' -> '.join((*self.chain, self.what))})" if self.chain else ""
        place = f"{shown(self.path)}:{self.line}:{self.column}"
        note = "note: " if rule.is_note else ""
        return f"{place}: {self.code} {note}{rule.name}: {self.what}: {rule.why}; use {rule.instead} instead{way}"

    def document(self) -> dict[str, Any]:
        """Return the finding as a JSON object."""
        rule = self.rule
        return {
            "path": shown(self.path),
            "line": self.line,
            "column": self.column,
            "code": self.code,
            "name": rule.name,
            "is_note": rule.is_note,
            "what": self.what,
            "why": rule.why,
            "instead": rule.instead,
            "chain": [*self.chain, self.what] if self.chain else [],
        }


def excerpt(node: ast.AST) -> str:
    """Return the source of an expression on one line, cut to 60 characters."""
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= _LONGEST_EXCERPT else f"{text[: _LONGEST_EXCERPT - 3]}..."


def listed(words: str, prefix: str = "") -> frozenset[str]:
    """Return the words of a text, each after the prefix."""
    return frozenset(f"{prefix}{word}" for word in words.split())


# The names of libraries that break a rule when they are called or read. The longest matching prefix decides: all names
# of `random` break one, but `random.Random` does not.
_PATH_METHODS = (
    "open read_text read_bytes write_text write_bytes exists is_file is_dir is_symlink is_mount is_socket is_fifo "
    "is_block_device is_char_device is_junction stat lstat iterdir glob rglob walk mkdir rmdir unlink rename replace "
    "touch chmod lchmod symlink_to hardlink_to readlink samefile owner group copy copy_into move move_into"
)
_CALLED: dict[str, str] = {
    "CM101": "time datetime.datetime.now datetime.datetime.today datetime.datetime.utcnow datetime.date.today "
    "pandas.Timestamp.now pandas.Timestamp.today pandas.Timestamp.utcnow arrow.now arrow.utcnow pendulum.now "
    "pendulum.today pendulum.tomorrow pendulum.yesterday django.utils.timezone.now email.utils.localtime",
    "CM102": "time.monotonic time.monotonic_ns time.perf_counter time.perf_counter_ns time.process_time "
    "time.process_time_ns time.thread_time time.thread_time_ns time.clock_gettime time.clock_gettime_ns "
    "timeit os.times resource.getrusage",
    "CM103": "time.mktime time.tzset datetime.date.fromtimestamp dateutil.tz.tzlocal "
    "tzlocal email.utils.formatdate",
    "CM104": "time.sleep sched",
    "CM201": "random _random",
    "CM202": "secrets os.urandom os.getrandom random.SystemRandom ssl.RAND_bytes Crypto.Random",
    "CM203": "uuid.uuid1 uuid.uuid4 uuid.uuid6 uuid.uuid7 uuid.uuid8 ulid nanoid shortuuid bson.ObjectId",
    "CM204": "numpy.random torch.rand torch.randn torch.randint torch.randperm tensorflow.random faker scipy.stats",
    "CM301": "os.getenv os.getenvb os.putenv os.unsetenv os.path.expandvars decouple environ dotenv",
    "CM302": "os.getpid os.getppid os.getcwd os.getcwdb os.getlogin os.getuid os.geteuid os.getgid os.getpgrp "
    "os.get_exec_path os.umask getpass.getuser os.path.abspath os.path.realpath os.path.expanduser "
    "sys.getrecursionlimit inspect.stack inspect.currentframe sys._getframe traceback.extract_stack argparse optparse "
    "pathlib.Path.cwd pathlib.Path.home pathlib.Path.resolve pathlib.Path.absolute "
    "pathlib.Path.expanduser resource psutil.Process",
    "CM303": "platform socket.gethostname socket.getfqdn os.uname os.cpu_count os.process_cpu_count os.getloadavg "
    "os.sysconf uuid.getnode shutil.disk_usage shutil.which psutil importlib.metadata multiprocessing.cpu_count "
    "os.get_terminal_size shutil.get_terminal_size sysconfig site pkg_resources",
    "CM304": "locale gettext babel.default_locale",
    "CM401": "builtins.open io.open io.FileIO os.open os.read os.write os.fdopen os.listdir os.scandir os.walk "
    "os.fwalk os.stat os.lstat os.access os.mkdir os.makedirs os.remove os.unlink os.rmdir os.removedirs os.rename "
    "os.replace os.renames os.link os.symlink os.readlink os.chmod os.chown os.truncate os.pipe os.mkfifo os.utime "
    "os.sendfile os.statvfs os.chdir os.path.exists os.path.lexists os.path.isfile os.path.isdir os.path.islink "
    "os.path.ismount os.path.getsize os.path.getmtime os.path.getatime os.path.getctime os.path.samefile codecs.open "
    "shutil tempfile glob fileinput mmap linecache zipfile.ZipFile tarfile.open gzip.open bz2.open lzma.open "
    "gzip.GzipFile bz2.BZ2File lzma.LZMAFile shelve dbm importlib.resources pkgutil.get_data filecmp "
    "numpy.load numpy.loadtxt numpy.save numpy.savetxt numpy.fromfile numpy.genfromtxt "
    "pandas.read_csv pandas.read_json pandas.read_parquet pandas.read_excel pandas.read_pickle pandas.read_table "
    "pandas.read_feather pyarrow.parquet aiofiles logging.FileHandler logging.basicConfig logging.handlers "
    "logging.config fcntl msvcrt configparser.ConfigParser.read posix nt _io.open fsspec smart_open "
    "zoneinfo.available_timezones zoneinfo.reset_tzpath " + " ".join(listed(_PATH_METHODS, "pathlib.Path.")),
    "CM402": "socket ssl http.client http.server urllib.request urllib3 requests httpx aiohttp httplib2 pycurl ftplib "
    "smtplib imaplib poplib nntplib telnetlib xmlrpc socketserver selectors select websockets websocket grpc boto3 "
    "botocore azure google.cloud paramiko fabric dns kafka confluent_kafka pika kombu nats zmq stripe twilio slack_sdk "
    "openai anthropic webbrowser wsgiref pyspark",
    "CM403": "subprocess os.system os.popen os.fork os.forkpty os.posix_spawn os.posix_spawnp os.execl os.execle "
    "os.execlp os.execlpe os.execv os.execve os.execvp os.execvpe os.spawnl os.spawnle os.spawnlp os.spawnv os.spawnve "
    "os.spawnvp os.kill os.killpg os.wait os.waitpid os.abort os._exit os.startfile pty pexpect sh plumbum",
    "CM404": "sqlite3 psycopg psycopg2 asyncpg pymysql MySQLdb mysql pymongo motor redis sqlalchemy pyodbc oracledb "
    "cx_Oracle duckdb cassandra elasticsearch opensearchpy peewee pony tortoise aiosqlite django.db snowflake "
    "clickhouse_driver influxdb neo4j eventstore memcache pymemcache diskcache plyvel lmdb tinydb",
    "CM405": "builtins.input getpass.getpass builtins.breakpoint sys.stdin readline curses",
    "CM501": "threading _thread concurrent.futures multiprocessing signal joblib celery dask ray rq billiard "
    "os.register_at_fork",
    "CM502": "asyncio trio anyio gevent eventlet curio twisted tornado asgiref",
    "CM601": "builtins.id",
    "CM603": "gc weakref tracemalloc sys.getrefcount sys.getsizeof ctypes sys.getallocatedblocks",
    "CM804": "functools.lru_cache functools.cache functools.cached_property cachetools joblib.Memory methodtools",
    "CM805": "decimal.getcontext decimal.setcontext sys.setrecursionlimit sys.settrace sys.setprofile "
    "sys.setswitchinterval atexit warnings.filterwarnings warnings.simplefilter contextvars numpy.seterr "
    "numpy.set_printoptions sys.set_int_max_str_digits faulthandler",
    "CM901": "builtins.exec builtins.compile runpy importlib.reload",
    # Deterministic names in modules whose other names break a rule.
    "": "random.Random time.struct_time time.strptime socket.inet_aton socket.inet_ntoa socket.inet_pton "
    "socket.inet_ntop socket.htons socket.ntohs socket.htonl socket.ntohl numpy.random.SeedSequence "
    "threading.Lock threading.RLock asyncio.CancelledError urllib3.util datetime.datetime datetime.date "
    "azure.functions.Context signal.Signals tempfile.gettempprefix glob.escape shutil.Error "
    "multiprocessing.TimeoutError "
    "concurrent.futures.TimeoutError http.client.responses subprocess.list2cmdline locale.Error "
    "scipy.stats.norm.cdf scipy.stats.norm.pdf scipy.stats.norm.ppf weakref.ReferenceType psutil.Error "
    "requests.HTTPError requests.exceptions httpx.HTTPError sqlite3.Error psycopg.Error sqlalchemy.exc "
    "threading.local.__doc__ site.__doc__ importlib.metadata.PackageNotFoundError",
}
_READ: dict[str, str] = {
    "CM103": "time.tzname time.timezone time.altzone time.daylight",
    "CM301": "os.environ os.environb",
    "CM302": "sys.argv sys.orig_argv sys.path sys.modules sys.flags sys.executable sys.prefix sys.base_prefix "
    "builtins.__debug__ sys.warnoptions",
    "CM303": "sys.platform sys.version sys.version_info sys.hexversion sys.implementation sys.api_version os.name "
    "sys.float_info.rounds sys.getwindowsversion sys.thread_info sys.hash_info",
    "CM304": "calendar.month_name calendar.month_abbr calendar.day_name calendar.day_abbr sys.getfilesystemencoding",
    "CM405": "sys.stdin sys.__stdin__",
}
_SAME = {
    "posixpath": "os.path",
    "ntpath": "os.path",
    **dict.fromkeys(listed("app context handler message", "handlers."), "handlers"),
    "collections.abc": "typing",
    "typing_extensions": "typing",
    "io.open": "builtins.open",
    "_io.open": "builtins.open",
    **dict.fromkeys(listed("fields main functional_validators", "pydantic."), "pydantic"),
    "pydantic.dataclasses.dataclass": "dataclasses.dataclass",
    "pathlib.PosixPath": "pathlib.Path",
    "pathlib.WindowsPath": "pathlib.Path",
    "os.path.os": "os",
    "builtins.__builtins__": "builtins",
}
_WHEN_CALLED = {name: code for code, names in _CALLED.items() for name in names.split()}
_WHEN_READ = {name: code for code, names in _READ.items() for name in names.split()}
STAR_MODULES = frozenset(name.partition(".")[0] for name in (*_WHEN_CALLED, *_WHEN_READ))
"""Modules for which there are rules, so that star imports of them are looked up."""


def canonical(name: str) -> str:
    """Return the name under which something is listed here, for a name that is an alias of it."""
    prefix = _longest(name, _SAME)
    return _SAME[prefix] + name[len(prefix) :] if prefix else name


def called(name: str) -> str | None:
    """Return the code of the rule that a call breaks, None when it breaks none."""
    return _WHEN_CALLED.get(_longest(name, _WHEN_CALLED)) or None


def read(name: str) -> str | None:
    """Return the code of the rule that reading a name breaks, None when it breaks none."""
    return _WHEN_READ.get(name)


def _longest(name: str, known: Mapping[str, str]) -> str:
    """Return the longest prefix of a dotted name that is known, empty when none is."""
    while name and name not in known:
        name = name.rpartition(".")[0]
    return name
