"""The rules: names in libraries that a handler must not use, the reasons, and the alternatives."""

import ast
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from handlers.lint.source import shown

# Each rule has a code, name, reason and alternative, then the names that break the rule when called or read. The
# longest prefix decides: all names in `random` break a rule when called, except `random.Random`.
_TABLE = """
CM101 | wall clock | a replay reads another time | context.now
  calls: time datetime.datetime.{now today utcnow} datetime.date.today pandas.Timestamp.{now today utcnow} arrow.{now
    utcnow} pendulum.{now today tomorrow yesterday} django.utils.timezone.now email.utils.localtime
CM102 | process clock | it starts at another value in each process | context.now, or CAPTURE for a measurement
  calls: time.{monotonic monotonic_ns perf_counter perf_counter_ns process_time process_time_ns thread_time
    thread_time_ns clock_gettime clock_gettime_ns} timeit os.times resource.getrusage
CM103 | local time zone | it may differ between machines | an explicit time zone, such as UTC
  calls: time.{mktime tzset localtime ctime} datetime.date.fromtimestamp dateutil.tz.tzlocal tzlocal
    email.utils.formatdate
  reads: time.{tzname timezone altzone daylight}
CM104 | waiting | it delays all later messages, and depends on the clock
    | a message that says when it is due, and context.now
  calls: time.sleep sched
CM201 | random numbers | a replay draws other numbers | context.random
  calls: random _random
CM202 | secrets | a replay draws different ones | context.random, or CAPTURE for what must be unpredictable
  calls: secrets os.{urandom getrandom} random.SystemRandom ssl.RAND_bytes Crypto.Random
CM203 | guids | a replay makes another one | context.new_guid()
  calls: uuid.{uuid1 uuid4 uuid6 uuid7 uuid8} ulid nanoid shortuuid bson.ObjectId
CM204 | random numbers of a library | a replay draws other numbers
    | context.random, or the library's generator seeded with context.random.getrandbits(64)
  calls: numpy.random torch.{rand randn randint randperm} tensorflow.random faker scipy.stats
CM205 | shared random generator | its numbers depend on what was drawn before
    | context.random, or a generator created and seeded in the handler
CM206 | predictable draws | a sender that chooses message ids can compute them
    | keyed draws (--draws keyed) where senders are not trusted
CM301 | environment variables | they may differ between processes | CAPTURE
  calls: os.{getenv getenvb putenv unsetenv} os.path.expandvars decouple environ dotenv
  reads: os.{environ environb}
CM302 | process information | it differs between processes | CAPTURE
  calls: os.{getpid getppid getcwd getcwdb getlogin getuid geteuid getgid getpgrp get_exec_path umask} getpass.getuser
    os.path.{abspath realpath expanduser} sys.{getrecursionlimit _getframe} inspect.{stack currentframe}
    traceback.extract_stack argparse optparse resource pathlib.Path.{cwd home resolve absolute expanduser}
    psutil.Process
  reads: sys.{argv orig_argv path modules flags executable prefix base_prefix warnoptions} builtins.__debug__
CM303 | machine information | it differs between machines | CAPTURE
  calls: platform psutil sysconfig site pkg_resources socket.{gethostname getfqdn} os.{uname cpu_count
    process_cpu_count getloadavg sysconf get_terminal_size} uuid.getnode shutil.{disk_usage which get_terminal_size}
    importlib.metadata multiprocessing.cpu_count
  reads: sys.{platform version version_info hexversion implementation api_version getwindowsversion thread_info
    hash_info} os.name
CM304 | locale | it may differ between machines | an explicit format
  calls: locale gettext babel.default_locale
  reads: calendar.{month_name month_abbr day_name day_abbr} sys.getfilesystemencoding
CM401 | files | their content changes, and differs between machines | CAPTURE
  calls: builtins.open io.{open FileIO} os.{open read write fdopen listdir scandir walk fwalk stat lstat access mkdir
    makedirs remove unlink rmdir removedirs rename replace renames link symlink readlink chmod chown truncate pipe
    mkfifo utime sendfile statvfs chdir} os.path.{exists lexists isfile isdir islink ismount getsize getmtime getatime
    getctime samefile} codecs.open shutil tempfile glob fileinput mmap linecache shelve dbm filecmp aiofiles fcntl
    msvcrt posix nt fsspec smart_open zipfile.ZipFile tarfile.open gzip.{open GzipFile} bz2.{open BZ2File} lzma.{open
    LZMAFile} importlib.resources pkgutil.get_data numpy.{load loadtxt save savetxt fromfile genfromtxt}
    pandas.{read_csv read_json read_parquet read_excel read_pickle read_table read_feather} pyarrow.parquet
    logging.{FileHandler basicConfig handlers config} configparser.ConfigParser.read _io.open
    zoneinfo.{available_timezones reset_tzpath} pathlib.Path.{chmod is_block_device is_symlink iterdir glob lchmod
    rmdir hardlink_to open owner samefile is_file is_socket mkdir symlink_to write_bytes group move is_char_device
    is_fifo is_dir rename readlink move_into lstat walk read_text touch copy write_text copy_into read_bytes exists
    stat rglob is_mount replace unlink is_junction}
CM402 | network | a replay may get another answer, or none | CAPTURE, or a message to a consumer that calls the service
  calls: socket ssl urllib3 requests httpx aiohttp httplib2 pycurl ftplib smtplib imaplib poplib nntplib telnetlib
    xmlrpc socketserver selectors select websockets websocket grpc boto3 botocore azure paramiko fabric dns kafka
    confluent_kafka pika kombu nats zmq stripe twilio slack_sdk openai anthropic webbrowser wsgiref pyspark
    http.{client server} urllib.request google.cloud
CM403 | other programs | a replay runs them again, and may get another result
    | CAPTURE, or a message to a consumer that runs it
  calls: subprocess pty pexpect sh plumbum os.{system popen fork forkpty posix_spawn posix_spawnp execl execle execlp
    execlpe execv execve execvp execvpe spawnl spawnle spawnlp spawnv spawnve spawnvp kill killpg wait waitpid abort
    _exit startfile}
CM404 | databases | a replay may read other data, and writes again | the state, a message, or CAPTURE
  calls: sqlite3 psycopg psycopg2 asyncpg pymysql MySQLdb mysql pymongo motor redis sqlalchemy pyodbc oracledb
    cx_Oracle duckdb cassandra elasticsearch opensearchpy peewee pony tortoise aiosqlite snowflake clickhouse_driver
    influxdb neo4j eventstore memcache pymemcache diskcache plyvel lmdb tinydb django.db
CM405 | console input | a replay gets no input, or another one | a field of the message
  calls: builtins.{input breakpoint} getpass.getpass sys.stdin readline curses
  reads: sys.{stdin __stdin__}
CM501 | threads and processes | their order of execution is not deterministic | sequential code
  calls: threading _thread multiprocessing signal joblib celery dask ray rq billiard concurrent.futures
    os.register_at_fork
CM502 | asynchronous code | its order of execution is not deterministic | sequential code
  calls: asyncio trio anyio gevent eventlet curio twisted tornado asgiref
CM601 | object identity | it is a memory address | a field that names the object, or context.new_guid()
  calls: builtins.id
CM602 | hash | the hashes of str and bytes differ between processes | hashlib, or the value itself
CM603 | memory | its layout differs between processes | plain values
  calls: gc weakref tracemalloc ctypes sys.{getrefcount getsizeof getallocatedblocks}
CM701 | order of a set | it differs between processes | sorted(...)
CM702 | arbitrary member of a set | which one differs between processes | min(...), or sorted(...)[0]
CM703 | text of a set | the order of its members differs between processes | sorted(...)
CM704 | float sum over a set | its rounding depends on the order of the members | math.fsum(...), or Decimal
CM705 | ties in a set | of members with equal keys the first is taken, and their order differs
    | a key that ends in the member itself: key=lambda each: (each.score, each.name)
CM801 | module state | it differs between processes, and a restart loses it | a field of the state
CM802 | class or handler state | it differs between processes, and a restart loses it | a field of the state
CM803 | mutable default argument | all calls share it | None as the default
CM804 | cached results | they may depend on earlier messages | the plain function, or a local variable
  calls: functools.{lru_cache cache cached_property} cachetools methodtools joblib.Memory
CM805 | process settings | all handlers of the process share them | arguments; for decimals decimal.Context(prec=...)
  calls: decimal.{getcontext setcontext} sys.{setrecursionlimit settrace setprofile setswitchinterval
    set_int_max_str_digits} atexit contextvars faulthandler warnings.{filterwarnings simplefilter} numpy.{seterr
    set_printoptions}
CM806 | mutated state | the given state is the version before, which must not change | state.model_copy(update=...)
CM807 | mutated message | a replay must get the same message | a local variable
CM808 | mutable module state | earlier messages may have changed it | the state, or CAPTURE
CM901 | not followed | the source does not show the called code | a name in the source
  calls: builtins.{exec compile} runpy importlib.reload
CM902 | noqa without a reason | the reason is missing | # noqa: CODE and the reason
CM903 | unused noqa | it would hide later findings | the line without it
pure | deterministic names in modules whose other names break a rule
  calls: random.Random time.{struct_time strptime gmtime strftime asctime} socket.{inet_aton inet_ntoa inet_pton
    inet_ntop htons ntohs htonl ntohl} numpy.random.{SeedSequence default_rng RandomState Generator PCG64}
    threading.{Lock RLock} asyncio.CancelledError urllib3.util datetime.{datetime date} azure.functions.Context
    signal.Signals tempfile.gettempprefix glob.escape shutil.Error multiprocessing.TimeoutError
    concurrent.futures.TimeoutError http.client.responses subprocess.list2cmdline locale.Error scipy.stats.norm.{cdf
    pdf ppf} weakref.ReferenceType psutil.Error requests.{HTTPError exceptions} httpx.HTTPError sqlite3.Error
    psycopg.Error sqlalchemy.exc importlib.metadata.PackageNotFoundError
"""


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule. The first digit of its code is its group. If `is_note` is set, its findings are shown as notes."""

    code: str
    name: str
    why: str
    instead: str
    is_note: bool = False


def listed(text: str) -> frozenset[str]:
    """Split a text into names. Braces are expanded: `os.{stat walk}` becomes `os.stat` and `os.walk`."""
    words = re.findall(r"(\S*)\{(.*?)\}|(\S+)", text, re.DOTALL)
    return frozenset(prefix + name for prefix, names, word in words for name in names.split() or [word])


_ROWS = re.split(r"\n(?=\w)", _TABLE.strip().replace("CAPTURE", "context.capture(name, function)"))
_CALLED: dict[str, str] = {}
_READ: dict[str, str] = {}
_RULES: dict[str, Rule] = {}
for _row in _ROWS:
    _heading, *_named = re.split(r"\n  (?=calls|reads)", _row)
    _code, *_texts = re.split(r"\s+\| ", _heading)
    for _names in _named:
        (_CALLED if _names.startswith("calls") else _READ).update(dict.fromkeys(listed(_names[6:]), _code))
    if _code != "pure":
        _name, _why, _instead = _texts
        _RULES[_code] = Rule(_code, _name, _why, _instead, is_note=_code in {"CM206", "CM901"})
RULES: Mapping[str, Rule] = MappingProxyType(_RULES)
STAR_MODULES = frozenset(name.partition(".")[0] for name in (*_CALLED, *_READ))
"""Top-level modules that have rules. Star imports from these are looked up."""

_SAME = {
    **dict.fromkeys(("posixpath", "ntpath"), "os.path"),
    **dict.fromkeys(listed("handlers.{app context message}"), "handlers"),
    **dict.fromkeys(listed("collections.abc typing_extensions"), "typing"),
    **dict.fromkeys(listed("io.open _io.open"), "builtins.open"),
    **dict.fromkeys(listed("pydantic.{fields main functional_validators}"), "pydantic"),
    **dict.fromkeys(listed("pathlib.{PosixPath WindowsPath}"), "pathlib.Path"),
    "pydantic.dataclasses.dataclass": "dataclasses.dataclass",
    "os.path.os": "os",
    "builtins.__builtins__": "builtins",
}
"""Other names of listed names, by prefix."""

_LONGEST_EXCERPT = 60


@dataclass(frozen=True, slots=True)
class Finding:
    """A place that breaks a rule."""

    path: Path
    line: int
    column: int
    code: str
    what: str  # the offending name or source
    chain: tuple[str, ...] = ()  # the calls that lead there from a handler

    @property
    def rule(self) -> Rule:
        return RULES[self.code]

    def __str__(self) -> str:
        rule = self.rule
        way = f" ({' -> '.join((*self.chain, self.what))})" if self.chain else ""
        location = f"{shown(self.path)}:{self.line}:{self.column}"
        note = "note: " if rule.is_note else ""
        return f"{location}: {self.code} {note}{rule.name}: {self.what}: {rule.why}; use {rule.instead} instead{way}"

    def document(self) -> dict[str, Any]:
        """Return the finding, with its rule, in its JSON form."""
        chain = [*self.chain, self.what] if self.chain else []
        return {**asdict(self), **asdict(self.rule), "path": shown(self.path), "chain": chain}


def excerpt(node: ast.AST) -> str:
    """Return the source of an expression on one line. Long source is cut to 60 characters."""
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= _LONGEST_EXCERPT else f"{text[: _LONGEST_EXCERPT - 3]}..."


def canonical(name: str) -> str:
    """Return the spelling of a full name that `_TABLE` uses, such as `os.path.exists` for `posixpath.exists`."""
    prefix = _longest(name, _SAME)
    return _SAME[prefix] + name[len(prefix) :] if prefix else name


def called(name: str) -> str | None:
    """Return the code of the rule that a call of a name breaks, or None if no rule forbids the call."""
    code = _CALLED.get(_longest(name, _CALLED))
    return code if code in RULES else None


def read(name: str) -> str | None:
    """Return the code of the rule that reading a name breaks, or None if no rule forbids it."""
    return _READ.get(name)


def _longest(name: str, known: Mapping[str, str]) -> str:
    while name and name not in known:
        name = name.rpartition(".")[0]
    return name
