"""Turns: each contender once, then each once more, so that a slow minute of the machine meets all of them."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from benchmarks.catalogue import CONTENDERS, Entry
from benchmarks.code import code_digest
from benchmarks.contender import Setting
from benchmarks.host import Host
from benchmarks.logs import CACHE, Log, open_log
from benchmarks.results import Results, now
from benchmarks.sizes import Size

_WAKES = 1_000
"""So many messages go before each turn: Spark ends workers that had nothing to do for a minute, while others worked."""

Step = Callable[[str], None]
"""Is called with a short sentence when a run goes on to its next step."""


def run(
    size: Size, names: Sequence[str], *, cores: int, in_flight: int, step: Step, cache: Path = CACHE
) -> Results:
    """Start the contenders, warm each up, let them work in turn, and return what was measured."""
    results = Results(size, cores, now(), code_digest())
    entries = [CONTENDERS[name] for name in names]
    for entry in entries:
        reason = entry.why_not()
        if reason is not None:
            results.left_out[entry.name] = reason
    present = [entry for entry in entries if entry.name not in results.left_out]
    step("Making logs")
    logs = {entry.name: _log(size, entry, cache) for entry in present}
    (cache / "runs").mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache / "runs") as folder, ExitStack() as stack:
        hosts: dict[str, Host] = {}
        for entry in present:
            setting = Setting(Path(folder) / entry.name, Path(folder), cores, in_flight)
            hosts[entry.name] = _start(entry, setting, stack, results, step)
            if size.warm_up:
                step(f"{entry.name}: warming up")
                hosts[entry.name].measure(_warm_up_log(size, entry, cache, size.warm_up))
        for turn in range(1, size.runs + 1):
            for entry in present:
                host = hosts[entry.name]
                if size.warm_up:
                    host.measure(_warm_up_log(size, entry, cache, _WAKES))
                measurement = host.measure(logs[entry.name])
                results.measured.setdefault(entry.name, []).append(measurement)
                step(f"Turn {turn} of {size.runs}: {entry.name} took {measurement.seconds:.2f} s")
    results.code_at_the_end = code_digest()
    return results


def _start(entry: Entry, setting: Setting, stack: ExitStack, results: Results, step: Step) -> Host:
    step(f"{entry.name}: starting")
    host = Host(entry, setting)
    stack.callback(host.close)
    results.started[entry.name] = host.start()
    return host


def _log(size: Size, entry: Entry, cache: Path) -> Log:
    messages = size.messages[entry.amount]
    return open_log(messages, size.streams(messages), size.duplicates, cache)


def _warm_up_log(size: Size, entry: Entry, cache: Path, most: int) -> Log:
    messages = min(most, max(size.messages[entry.amount] // 3, 1))
    return open_log(messages, size.streams(messages), size.duplicates, cache)
