"""Open message logs: paths, DataFrames, and tables of pandas or Arrow.

Files on local disks are listed by this process before Spark starts: missing, empty and wrong files raise an error, and
hidden files are counted. All other files are listed by Spark, which has the credentials.
"""

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial, reduce
from hashlib import file_digest, sha256
from io import TextIOWrapper
from itertools import islice, product
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard

import msgpack
import pyarrow as pa
from pyarrow import parquet
from pydantic_core import to_jsonable_python
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import from_arrow_schema, from_arrow_type
from pyspark.sql.types import ArrayType, BinaryType, DataType, IntegralType, MapType, StringType, StructType

from runtime.errors import LogError, UsageError
from runtime.file_systems import open_folder
from runtime.messages.records import AS_JSON, Decoding
from runtime.spark.logs.normalise import OPTIONAL, REQUIRED, lacks
from runtime.spark.session import explain, failing_as, is_local, is_of_spark, master_of, unless_gone
from runtime.spark.worker.outcomes import ARROW_OUTPUT

_OUTPUT = list(ARROW_OUTPUT)
_SCHEMA = pa.schema([*_OUTPUT[:3], ("business_id", pa.string()), *_OUTPUT[3:], ("handler", pa.string())])
_ROWS_IN_A_GROUP = 131_072

LogRow = Mapping[str, Any]


def write_log(rows: Iterable[LogRow], path: Path) -> int:
    """Write messages atomically as JSON lines or, by suffix, Parquet with the first one's columns. Return the count."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"_{path.name}.unfinished")
    rows, count = iter(rows), 0
    try:
        if _SUFFIXES.get(path.suffix.lower()) == "json":
            with unfinished.open("w", encoding="utf-8") as file:
                for row in rows:
                    file.write(f"{json.dumps(row, ensure_ascii=False, default=_in_json)}\n")
                    count += 1
        else:
            group = list(islice(rows, _ROWS_IN_A_GROUP))
            names = group[0].keys() if group else set(_SCHEMA.names)
            schema = pa.schema([field for field in _SCHEMA if field.name in names])
            with parquet.ParquetWriter(unfinished, schema, compression="zstd") as writer:
                while group:
                    writer.write_table(pa.Table.from_pylist(group, schema))
                    count += len(group)
                    group = list(islice(rows, _ROWS_IN_A_GROUP))
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
    return count


Log = DataFrame | str | Path | Sequence[str | Path] | Any
"""A path, a list of paths, a DataFrame of Spark or of pandas, or a table that Arrow can read."""

MOST_BYTES = 4 * 2**30  # digested by this process; Spark's workers digest larger logs
_MOST_FILES = 100  # opened to detect their format
_SUFFIXES = {".json": "json", ".jsonl": "json", ".ndjson": "json", ".parquet": "parquet", ".pq": "parquet"}
_COMPRESSED = re.compile(r"\.(gz|gzip|bz2|zst|zstd|lz4|snappy|deflate)\Z")
_NAMED_BY_SPARK = re.compile(
    r"_SUCCESS|_metadata|_common_metadata|_spark_metadata|_started_\d+|_committed_\d+|\..*\.crc"
)
_TABLES = {"_delta_log": "Delta", ".hoodie": "Hudi"}
"""Table formats whose folders also contain deleted rows, by a file or folder that identifies the format."""

_SCHEME = re.compile(r"[A-Za-z][\w+.-]*:(//[^/]*)?")
_PATTERN = re.compile(r"[*?\[\]{}]")
_SHOWN = 3
_CHUNK = 2**20
_LINES = 100


@dataclass(frozen=True, slots=True)
class LogFiles:
    """The files of a log, and how Spark reads them."""

    format: str
    paths: Sequence[str]
    files: Sequence[str]
    within: Sequence[tuple[str, ...]]  # for each file, the folders between the log and the file
    is_partitioned: bool  # these folders are columns, such as dt=2026-01-01
    is_on_disk: bool
    skipped: str | None = None  # a description of the hidden files


class Input(NamedTuple):
    """The identity of a log: the number of messages, and a digest that does not depend on their order."""

    messages: int
    name: str

    def __str__(self) -> str:
        return f"{self.messages} messages with {self.name}"


class OpenedLog(NamedTuple):
    """A log as a DataFrame, with the files if the log was opened by path."""

    rows: DataFrame
    where: str = ""
    files: LogFiles | None = None
    given: Input | None = None  # its identity, if it was opened by offsets
    may_change: bool = False  # between readings of the same offsets


def is_kafka(log: object) -> TypeGuard[str]:
    """Return whether a log is the URL of topics in Kafka, or `env:NAME`: a variable with such a URL."""
    return isinstance(log, str) and log.startswith(("kafka://", "env:"))


def check_alone(log: object) -> None:
    """Raise `UsageError` for a list that contains the URL of topics in Kafka."""
    if isinstance(log, list | tuple) and any(map(is_kafka, log)):
        raise UsageError("Topics of Kafka must be the only log: name all topics in one URL, without a list.")


def is_on_disk(path: str, master: str) -> bool:
    """Return whether Spark reads a path from local disks. For a pattern like `*.json`, only if a file has that name."""
    if "HADOOP_CONF_DIR" in os.environ or not is_local(master):
        return False
    is_one = not _PATTERN.search(path) and (path.startswith("file:") or not _SCHEME.match(path))
    return is_one or os.path.exists(_here(path))  # noqa: PTH110 - of any text


def _here(path: str) -> Path:
    return Path(open_folder(path).path if path.startswith("file:") else path).absolute()


def find_on_disk(paths: Sequence[str], format_: str | None = None, *, may_be_empty: bool = False) -> LogFiles:
    """List the files of a log on local disks. Raises `LogError` if files are missing, empty, or of a wrong format."""
    roots = [str(_here(path)) for path in paths]
    found: list[tuple[str, str]] = []
    skipped: list[str] = []
    for path, root in zip(paths, roots, strict=True):
        if not Path(root).exists():
            raise LogError(f"There is no log at {path}.")
        found += [(root, name) for name in _walk(root, skipped)]
    where, remark = ", ".join(paths), None
    if skipped:
        shown = ", ".join(sorted(skipped)[:_SHOWN]) + (", ..." if len(skipped) > _SHOWN else "")
        what = (
            "file or folder whose name begins" if len(skipped) == 1 else "files and folders whose names begin"
        )
        remark = f"{len(skipped):,} {what} with _ or . ({shown})"
    hidden = {Path(name).name for name in skipped}
    folders = {str(folder) for root in roots for folder in (root, *Path(root).parents)}
    _check_is_no_table(where, folders, lambda folder, name: name in hidden or Path(folder, name).exists())
    if may_be_empty and not found:
        return LogFiles(
            format_ or "json", roots, (), (), is_partitioned=False, is_on_disk=True, skipped=remark
        )
    files = _log_files(where, roots, found, format_, is_on_disk=True, remark=remark)
    _check_files(files)
    if not may_be_empty and not any(map(os.path.getsize, files.files)):
        raise LogError(f"The log at {where} holds no messages: its files are empty.")
    return files


def messages_on_disk(path: str) -> Iterator[Mapping[str, Any]]:
    """Yield the messages of a log on this disk that have an id and a body, without Spark.

    Raises the errors of `find_on_disk`.
    """
    found = find_on_disk([path])
    for file in found.files:
        rows = _rows_of_parquet(file) if found.format == "parquet" else _rows_of_lines(file)
        for row in rows:
            if isinstance(row, dict) and isinstance(row.get("message_id"), str) and "body" in row:
                yield row


def _rows_of_parquet(file: str) -> Iterator[Any]:
    for batch in parquet.ParquetFile(file).iter_batches(columns=["message_id", "body"]):
        yield from batch.to_pylist()


def _rows_of_lines(file: str) -> Iterator[Any]:
    with TextIOWrapper(pa.input_stream(file), "utf-8-sig", "replace") as lines:
        for line in lines:
            with suppress(ValueError, RecursionError):  # no JSON: a dead letter
                yield json.loads(line)


def _check_files(files: LogFiles) -> None:
    for file in files.files:
        if ":" in os.path.basename(file):  # noqa: PTH119 - there may be many
            raise LogError(f"{file} has a colon in its name, which Spark does not read: rename it.")
        if not os.path.isfile(file):  # noqa: PTH113 - as above
            raise LogError(f"{file} cannot be read: it is a broken link, or not a regular file.")
        if file.encode(errors="replace") != os.fsencode(file):
            raise LogError(f"{file!a} has a name that is not UTF-8, which Java does not read: rename it.")
    for file in files.files[:_MOST_FILES]:
        with Path(file).open("rb") as opened:
            is_parquet = opened.read(4) in (b"PAR1", b"PARE")
        if is_parquet and files.format == "json":
            raise LogError(f"{file} is Parquet: omit --format, or set --format parquet.")
        if not is_parquet and files.format == "parquet":
            raise LogError(f"{file} is not Parquet. If it holds JSON lines, set --format json.")


def open_log(
    spark: SparkSession,
    log: Log,
    format_: str | None = None,
    say: Callable[[str], None] = lambda _: None,
    *,
    decoding: Decoding = AS_JSON,
    recorded: str = "",
) -> OpenedLog:
    """Open a log. `say` is called with a remark on skipped files. `recorded`: for Kafka, the input of a resumed batch.

    `format_`: json or parquet, by default known from the suffixes of the files. `decoding`: how Kafka records are
    decoded. Raises `LogError` if the log cannot be read, and `UsageError` for an object that is no log.
    """
    check_alone(log)
    if is_kafka(log):
        from runtime.spark.logs.kafka import KafkaLog  # noqa: PLC0415 - of an extra

        topics = KafkaLog(log, decoding)
        ranges, name = topics.ranges(recorded)
        found = Input(sum(each.end - each.start for each in ranges), name)
        return OpenedLog(
            topics.rows(spark, ranges), str(topics), None, found, found.messages > 0 and topics.is_compacted()
        )
    if isinstance(log, str | Path):
        log = [log]
    if isinstance(log, DataFrame):
        opened = OpenedLog(log)
    elif isinstance(log, list | tuple) and log and all(isinstance(each, str | Path) for each in log):
        paths = list(map(str, log))
        here = all(is_on_disk(path, master_of(spark)) for path in paths)
        files = find_on_disk(paths, format_) if here else _find_with_spark(spark, paths, format_)
        if files.skipped:
            say(f"Reading the log without {files.skipped}")
        opened = OpenedLog(_read(spark, files, ", ".join(paths)), ", ".join(paths), files)
        odd = [file for file in files.files if not file.isascii()]
        if odd and here and len(opened.rows.inputFiles()) < len(files.files):
            raise LogError(
                f"Java sees only some of the files: its locale cannot represent {odd[0]!a}. Set LC_ALL=C.UTF-8, and "
                f"start Spark again."
            )
    elif hasattr(log, "__arrow_c_stream__"):
        opened = OpenedLog(_of_table(spark, log))
    else:
        raise UsageError(
            f"A log is a path, a list of paths, a DataFrame of Spark or pandas, or an Arrow table, not "
            f"{type(log).__name__}."
        )
    if opened.rows.columns == ["line"] and opened.rows.schema["line"].dataType == StringType():
        _check_lines(opened)
    return opened


def _of_table(spark: SparkSession, log: Any) -> DataFrame:  # noqa: ANN401 - whatever Arrow reads
    what = "The log cannot be read"
    try:
        table = _of_pandas(log) if type(log).__module__.partition(".")[0] == "pandas" else pa.table(log)
        for place, field in enumerate(table.schema):
            what = f"The column {field.name} of the log, of type {field.type}, cannot be read"
            to = _type_in_spark(field.type)
            from_arrow_type(to)  # raises when there is none
            table = table.set_column(place, field.name, table.column(place).cast(to))
        what = "The log cannot be read"
        return spark.createDataFrame(table)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise LogError(f"{what}: {'; '.join(map(str, error.args)) or error}.") from error


_IN_SPARK = {
    pa.string_view(): pa.string(),
    pa.binary_view(): pa.binary(),
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.int64(),
    pa.float16(): pa.float32(),
    pa.date64(): pa.date32(),
    pa.duration("ns"): pa.duration("us"),
    pa.time64("ns"): pa.time64("us"),
}


def _type_in_spark(type_: pa.DataType) -> pa.DataType:
    """Return a type that Spark supports and that can hold all valid values of `type_`. Converts nested types too."""
    if pa.types.is_timestamp(type_):
        return pa.timestamp("us", type_.tz)
    if pa.types.is_struct(type_):
        return pa.struct([field.with_type(_type_in_spark(field.type)) for field in type_])
    if pa.types.is_map(type_):
        return pa.map_(_type_in_spark(type_.key_type), _type_in_spark(type_.item_type))
    if pa.types.is_dictionary(type_) or isinstance(type_, pa.RunEndEncodedType):
        return _type_in_spark(type_.value_type)
    # Arrow casts list views wrongly, so they are left alone.
    if str(type_).partition("<")[0] in ("list", "large_list", "fixed_size_list"):
        return pa.list_(_type_in_spark(type_.value_type))
    return type_.storage_type if isinstance(type_, pa.BaseExtensionType) else _IN_SPARK.get(type_, type_)


def describe_input(log: OpenedLog) -> Input:
    """Return the identity of a log: a digest of its local files, else a checksum of its messages.

    Raises `LogError` if the log is empty or cannot be read.
    """
    if log.given is not None:
        found = log.given
        if log.may_change:
            found = found._replace(name=f"{found.name}, {describe_messages(log).name}")
        return _unless_empty(log, found)
    digest = None if log.files is None else _digest(log.files)
    return describe_messages(log) if digest is None else _unless_empty(log, digest)


def describe_messages(log: OpenedLog) -> Input:
    """Return the identity of the messages of a log, independent of its files. Costs a Spark job.

    Raises `LogError` if the log is empty or cannot be read.
    """
    columns = [
        sf.to_json(column) if isinstance(field.dataType, MapType | ArrayType | StructType) else column
        for field in log.rows.schema
        for column in [sf.col(f"`{field.name}`")]
    ]
    checksum = sf.sum(sf.xxhash64(*columns).cast("decimal(20,0)"))
    with failing_as(lambda sentence: LogError(f"The log {log.where} cannot be read: {sentence}")):
        (row,) = log.rows.agg(sf.count("*").alias("count"), checksum.alias("checksum")).collect()
    return _unless_empty(log, Input(row["count"], f"checksum {int(row['checksum'] or 0) % 2**64:016x}"))


def lines_of(text: DataFrame) -> DataFrame:
    """Return the lines of text files as a log, without blank lines."""
    return text.where("trim(BOTH ' \t' FROM value) != ''").select(sf.col("value").alias("line"))


def _check_is_no_table(where: str, folders: Iterable[str], has: Callable[[str, str], bool]) -> None:
    for (name, kind), folder in product(_TABLES.items(), folders):
        if has(folder, name):
            raise LogError(
                f"The log at {where} is a {kind} table: read it with its own reader, and pass the DataFrame "
                f"to run_batch or run_stream."
            )


def _check_lines(log: OpenedLog) -> None:
    lacking, names = set(REQUIRED), None
    for line in islice(filter(bytes.strip, _first_lines(log)), _LINES):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            return
        lacking -= row.keys() if isinstance(row, dict) else lacking
        if not lacking:
            return
        names = names or row
    if names is not None:
        raise lacks(log.where, lacking, names)


def _first_lines(log: OpenedLog) -> Iterator[bytes]:
    files = log.files
    if files is None or not files.is_on_disk or any(map(_COMPRESSED.search, files.files)):
        rows = log.rows.select(sf.substring("line", 1, _CHUNK).alias("line")).limit(_LINES)
        with failing_as(lambda sentence: LogError(f"The log {log.where} cannot be read: {sentence}")):
            yield from ((row["line"] or "").encode() for row in rows.collect())
        return
    for file in files.files[:_MOST_FILES]:
        with Path(file).open("rb") as opened:
            yield from iter(partial(opened.readline, _CHUNK), b"")


def _walk(root: str, skipped: list[str]) -> Iterator[str]:
    """Yield the paths of files under a root. Adds hidden files, which Spark ignores, to `skipped`."""
    parent = os.path.dirname(root)  # noqa: PTH120 - os.walk has texts
    if Path(root).is_file():
        levels: Iterable[tuple[str, list[str], list[str]]] = [(parent, [], [Path(root).name])]
    else:
        levels = os.walk(root, followlinks=True)
        if _is_hidden(Path(root).name):
            skipped.append(Path(root).name)
            return
    for folder, folders, files in levels:
        for names in (folders, files):
            hidden = [name for name in names if _is_hidden(name)]
            told = (name for name in hidden if not _NAMED_BY_SPARK.fullmatch(name))
            skipped += [os.path.relpath(os.path.join(folder, name), root) for name in told]  # noqa: PTH118
            names[:] = sorted(set(names) - set(hidden))
        for link in (os.path.join(folder, name) for name in folders):  # noqa: PTH118
            if os.path.islink(link) and Path(folder).resolve().is_relative_to(Path(link).resolve()):  # noqa: PTH114
                raise LogError(f"{link} is a link to a folder above it: remove it.")
        yield from (os.path.join(folder, name) for name in files)  # noqa: PTH118


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or (name.startswith("_") and "=" not in name) or name.endswith("._COPYING_")


def _find_with_spark(spark: SparkSession, paths: Sequence[str], format_: str | None) -> LogFiles:
    """List the files of a log with Spark, which ignores hidden files. Needs no job."""
    where, master = ", ".join(paths), master_of(spark)
    given = [literal(str(_here(path))) if is_on_disk(path, master) else path for path in paths]
    reader = spark.read.format("binaryFile").option("recursiveFileLookup", "true")
    try:
        files = reader.load(given).inputFiles()
    except Exception as error:
        if not is_of_spark(error):
            raise
        if "PATH_NOT_FOUND" in str(error):
            raise LogError(f"There is no log at {where}.") from error
        hint = " Start Spark with the package that brings the file system (spark.jars.packages)."
        is_unknown = "No FileSystem for scheme" in str(error) or "ClassNotFoundException" in str(error)
        raise LogError(
            f"The log at {where} cannot be opened: {explain(error)}{hint if is_unknown else ''}"
        ) from error

    def has(folder: str, name: str) -> bool:
        with unless_gone():
            return bool(reader.load(f"{folder}/{name}").inputFiles())
        return False

    folders = set()
    for path in given:
        parts = _PATTERN.split(path)[0].rstrip("/").split("/")
        folders |= {"/".join(parts[:end]) for end in range(max(len(parts) - 2, 1), len(parts) + 1)}
    _check_is_no_table(where, folders, has)
    root = _SCHEME.sub("", given[0]) if len(given) == 1 and not _PATTERN.search(given[0]) else ""
    return _log_files(where, given, [(root, file) for file in files], format_, is_on_disk=False)


def _log_files(
    where: str,
    paths: Sequence[str],
    found: Sequence[tuple[str, str]],
    format_: str | None,
    *,
    is_on_disk: bool,
    remark: str | None = None,
) -> LogFiles:
    files = [file for _, file in found]
    formats = set(filter(None, map(_format_of, paths))) or {_format_of(name) or "parquet" for name in files}
    if format_ is None and len(formats) > 1:
        raise LogError(
            f"The log at {where} has JSON lines and other files: run each format on its own, or set --format."
        )
    chosen = format_ or next(iter(formats), "parquet")
    if not files:
        passed_over = f" Spark ignores {remark}." if remark else ""
        raise LogError(f"The log at {where} holds no {chosen} files.{passed_over}")
    within = [tuple(file.partition(f"{root.strip('/')}/")[2].split("/")[:-1]) for root, file in found]
    is_partitioned = (
        chosen == "parquet"
        and len({root for root, _ in found}) == 1
        and all(folders and all("=" in name for name in folders) for folders in within)
    )
    return LogFiles(chosen, paths, files, within, is_partitioned, is_on_disk, remark)


def _format_of(name: str) -> str | None:
    stem = _COMPRESSED.sub("", name.rstrip("/").lower())
    return _SUFFIXES.get(os.path.splitext(stem)[1])  # noqa: PTH122 - of any file system


def _read(spark: SparkSession, files: LogFiles, where: str) -> DataFrame:
    def reader() -> DataFrameReader:  # a new one for each use, because it remembers its schema
        # By default Spark ignores folders that are not partitions.
        return spark.read.option("recursiveFileLookup", str(not files.is_partitioned).lower())

    paths = list(map(literal, files.paths) if files.is_on_disk else files.paths)
    try:
        if files.format == "json":
            return lines_of(reader().text(paths))
        return _read_parquet(reader, files, where, paths)
    except Exception as error:
        if not is_of_spark(error):
            raise
        name = (error.getCondition() or "") if isinstance(error, PySparkException) else ""
        hint = ""
        if name == "PARQUET_TYPE_ILLEGAL" and "NANOS" in str(error):
            hint = ' Write its times in microseconds: in pandas, to_parquet(..., coerce_timestamps="us").'
        elif files.format == "parquet" and not files.is_on_disk:
            hint = " If it holds JSON lines, set --format json."
        raise LogError(
            f"The log at {where} cannot be read as {files.format}: {explain(error)}{hint}"
        ) from error


def _read_parquet(
    reader: Callable[[], DataFrameReader], files: LogFiles, where: str, paths: Sequence[str]
) -> DataFrame:
    """Read Parquet files with the union of their columns. Reads local footers, to save a job. `where`: for errors."""
    groups: dict[tuple[tuple[str, pa.DataType], ...], list[str]] = {}
    untyped: set[str] = set()
    try:
        for file in files.files if files.is_on_disk else ():
            schema = parquet.read_schema(file)
            # pandas writes an empty column without a type, which Spark would read as numbers.
            untyped |= {field.name for field in schema if field.type == pa.null()}
            typed = tuple((field.name, field.type) for field in schema if field.type != pa.null())
            groups.setdefault(typed, []).append(file)
    except (OSError, pa.ArrowException):
        groups = {}  # Spark reports the corruption
    if not groups or any(Path(path, "_spark_metadata").exists() for path in files.paths):
        return reader().option("mergeSchema", "true").parquet(*paths)
    frames: list[DataFrame] = []
    types: dict[str, tuple[DataType, str]] = {}
    for columns, group in groups.items():
        found = _schema_of(columns, files)
        of_group = reader() if found is None else reader().schema(found)
        if files.is_partitioned:
            of_group = of_group.option("basePath", files.paths[0])
        rows = of_group.parquet(*(paths if len(groups) == 1 else map(literal, group)))
        rows = rows.drop(*(untyped - {name for name, _ in columns}))
        for field in rows.schema:
            type_, file = types.setdefault(field.name.lower(), (field.dataType, group[0]))
            if not _agree(type_, field.dataType):
                raise LogError(
                    f"The files of the log at {where} contradict each other: the column {field.name} is of type "
                    f"{type_.simpleString()} in {file}, and of type {field.dataType.simpleString()} in {group[0]}. "
                    f"Write it with one type, or run each file on its own."
                )
        frames.append(rows)
    return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), frames)


def _agree(one: DataType, other: DataType) -> bool:
    """Return whether a column may have these two types in different files. Structs may have different fields."""
    if isinstance(one, StructType) and isinstance(other, StructType):
        return all(
            _agree(one[name].dataType, other[name].dataType) for name in set(one.names) & set(other.names)
        )
    are_integers = isinstance(one, IntegralType) and isinstance(other, IntegralType)
    return are_integers or one.simpleString() == other.simpleString()


def literal(path: str) -> str:
    return re.sub(r"([*?\[\]{}\\])", r"\\\1", path)


def with_later_columns(schema: StructType) -> StructType:
    """Return a schema plus the optional columns of a log, which later files of a stream may have."""
    has = {field.name.lower(): field.dataType for field in schema}
    if has.get("body") == BinaryType():
        has.setdefault("business_id", StringType())  # required with msgpack bodies
    added = [each for each in from_arrow_schema(_SCHEMA) if each.name in OPTIONAL and each.name not in has]
    return StructType([*schema, *added])


def _schema_of(columns: Sequence[tuple[str, pa.DataType]], files: LogFiles) -> StructType | None:
    """Return the schema of local Parquet files, or `None` if only Spark can infer it. Saves a Spark job."""
    schema = pa.schema(columns)
    # A setting of the session may turn bytes into text, and some times are not supported.
    is_plain = not re.search(r"binary|timestamp\[(ns|us\]|ms\])", str(schema))
    if files.is_partitioned or not is_plain or len({name.lower() for name, _ in columns}) < len(columns):
        return None
    with suppress(PySparkException):
        return from_arrow_schema(schema)
    return None


def _digest(files: LogFiles) -> Input | None:
    """Return the identity of local files, or `None` for large, compressed or corrupt files, which Spark reads."""
    paths = [Path(file) for file in files.files]
    if not files.is_on_disk or any(_COMPRESSED.search(path.name.lower()) for path in paths):
        return None
    digests, messages = [], 0
    try:
        if sum(path.stat().st_size for path in paths) > MOST_BYTES:
            return None
        for path, folders in zip(paths, files.within, strict=True):
            if files.format == "json":
                messages += _count_lines(path)
            else:  # reading all pages raises `ArrowException` if one is corrupt
                with parquet.ParquetFile(path, buffer_size=_CHUNK, page_checksum_verification=True) as file:
                    messages += sum(batch.num_rows for batch in file.iter_batches(4096, use_threads=False))
            with path.open("rb") as opened:
                columns = folders if files.is_partitioned else ()
                digests.append((columns, file_digest(opened, "sha256").hexdigest()))
    except (OSError, pa.ArrowException):
        return None
    return Input(messages, f"digest {sha256(msgpack.packb(sorted(digests))).hexdigest()[:32]}")


def _count_lines(path: Path) -> int:
    lines, has_text = 0, False
    with path.open("rb") as file:
        if file.read(3) != b"\xef\xbb\xbf":
            file.seek(0)
        while chunk := file.read(_CHUNK):
            have_text = [bool(piece.strip(b" \t")) for piece in chunk.replace(b"\r", b"\n").split(b"\n")]
            have_text[0] = have_text[0] or has_text
            has_text = have_text.pop()
            lines += sum(have_text)
    return lines + has_text


def _unless_empty(log: OpenedLog, found: Input) -> Input:
    if found.messages == 0:
        raise LogError(f"The log {log.where} holds no messages: there is nothing to run.")
    return found


def _of_pandas(log: Any) -> pa.Table:  # noqa: ANN401 - pandas may not be there
    def as_json(value: object) -> object:
        return json.dumps(value, ensure_ascii=False, default=_in_json) if isinstance(value, dict) else value

    changed = {}
    for name in ("body", "headers"):
        if name in log.columns and log[name].map(lambda value: isinstance(value, dict)).any():
            changed[name] = log[name].map(as_json)
    if "sequence" in log.columns and log["sequence"].dtype.kind == "f":
        changed["sequence"] = log["sequence"].convert_dtypes()  # pandas stores integers with gaps as floats
    return pa.Table.from_pandas(log.assign(**changed), preserve_index=False)


def _in_json(value: Any) -> object:  # noqa: ANN401 - also of numpy and pandas
    """Convert a value to JSON that pydantic reads without loss of precision."""
    if hasattr(value, "isoformat"):
        return None if value != value else value.isoformat()  # noqa: PLR0124 - detects NaT
    kind = value.dtype.kind if hasattr(value, "dtype") else ""
    if kind == "m":
        raise TypeError("a timedelta64 has no JSON: pass a timedelta")
    if kind == "M":
        return value.astype(str).tolist()
    return value.tolist() if kind else to_jsonable_python(value, inf_nan_mode="constants")
