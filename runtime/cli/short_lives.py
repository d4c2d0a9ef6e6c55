"""How Spark is started for little work: Java would spend most of it on compiling for a long life."""

from __future__ import annotations

import os
from collections.abc import Mapping

SHORT_LIVED = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
"""Halves the processor time of Java where there are a hundred thousand messages or fewer."""

SMALL_BYTES = 16 * 2**20
"""A log of so many bytes: 60,000 messages of the sample as JSON lines, 190,000 as Parquet."""

_CHOSEN_BY_USER = (
    "JDK_JAVA_OPTIONS",
    "JAVA_TOOL_OPTIONS",
    "SPARK_CONF_DIR",
    "SPARK_HOME",
    "SPARK_SUBMIT_OPTS",
)


def settings_for(log_bytes: int | None) -> Mapping[str, str]:
    """Return the settings of a session that reads a log of so many bytes, None when that is not known.

    None of them where the environment says how Java is to be started.
    """
    is_small = log_bytes is not None and log_bytes <= SMALL_BYTES
    return SHORT_LIVED if is_small and not any(map(os.environ.get, _CHOSEN_BY_USER)) else {}
