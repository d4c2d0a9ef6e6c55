"""What a session is, asked in ways that one of this process (classic) and one of Spark Connect both answer."""

from __future__ import annotations

import math
import os
import re
import socket
from pathlib import Path
from urllib.parse import urlsplit

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

REMOTE = "sc://"
LOOPBACK = ("localhost", "127.0.0.1", "::1", "[::1]")
LOCAL = re.compile(r"local(?:\[\s*(\d+|\*)\s*(?:,\s*(\d+)\s*)?\])?\Z")
_SPLITS = re.compile(r"splits=(?:Some\()?(\d+)")
_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def is_connect(spark: SparkSession) -> bool:
    """Say whether a session is one of Spark Connect, whose driver is another process."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def is_local(master: str) -> bool:
    """Say whether all work is done in the working directory of this machine.

    `local-cluster` is not meant: its workers have directories of their own, where a relative path is another file.
    """
    return LOCAL.match(master) is not None


def may_be_local(master: str) -> bool:
    """Say whether all work may be done on this machine: a server of Spark Connect tells its master when it is asked."""
    return is_local(master) or (is_remote(master) and urlsplit(master).hostname in LOOPBACK)


def is_remote(master: str) -> bool:
    """Say whether a url is one of Spark Connect."""
    return master.startswith(REMOTE)


def setting(spark: SparkSession, name: str) -> str | None:
    """Return a setting of a session, None where it has none, or does not tell."""
    try:
        return spark.conf.get(name, None)
    except PySparkException:  # some platforms keep most of them to themselves
        return None


def master_of(spark: SparkSession) -> str:
    """Return where a session works: its master, or the url of a server of Spark Connect on another machine."""
    if is_connect(spark) and (host := host_of(spark)) not in LOOPBACK:
        return f"{REMOTE}{host}"
    return setting(spark, "spark.master") or "unknown"


def host_of(spark: SparkSession) -> str:
    """Return the host of the server of a session of Spark Connect."""
    return str(spark.client.host)


def address_for_workers(spark: SparkSession) -> str | None:
    """Return an address of this process that workers may reach, None where there is none."""
    if not is_connect(spark):
        return setting(spark, "spark.driver.host")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as towards:
        try:
            towards.connect((host_of(spark), 9))  # sends nothing: it chooses the address to send from
        except OSError:
            return None
        return str(towards.getsockname()[0])


def cores_of(spark: SparkSession) -> int:
    """Return how many tasks Spark would make of what has no partitions of its own: its default parallelism."""
    given = setting(spark, "spark.default.parallelism")
    if given is not None:
        return max(1, int(given))
    local = LOCAL.match(master_of(spark))
    if local is not None:
        return _cores_of_this_machine() if local[1] == "*" else int(local[1] or 1)
    # Nothing tells how many cores a cluster has, but the plan of a query does, which starts no job.
    row = spark.sql("EXPLAIN SELECT * FROM range(1)").first()
    found = _SPLITS.search(str(row[0])) if row else None
    return int(found[1]) if found else 2


def _cores_of_this_machine() -> int:
    """Return how many cores this process may use, as the JVM counts them: a container may have a part of all."""
    cores = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    try:
        quota, period = _QUOTA.read_text().split()
        return max(1, min(cores, math.ceil(int(quota) / int(period))))
    except (OSError, ValueError):
        return cores
