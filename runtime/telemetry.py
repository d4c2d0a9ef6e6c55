"""Telemetry: metrics as Prometheus text and through OpenTelemetry, spans of messages and batches, logs in JSON.

Only OpenTelemetry's API is used, and only if it is installed and the program has configured a provider.
"""

from __future__ import annotations

import json
import logging
import os
import re
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from functools import lru_cache
from itertools import accumulate
from math import isfinite
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

from eventstore import InterceptedTable, StoreUnavailableError, Table
from runtime.clock import shown_time, system_clock
from runtime.errors import UsageError
from runtime.messages.envelope import Envelope, without_trace
from runtime.messages.outcome import Outcome, Reason, Status
from runtime.versions.readable import HIDDEN_IN_LINE

otel: Any = None
try:
    from opentelemetry import metrics as otel_metrics
    from opentelemetry import trace as otel
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    _W3C = TraceContextTextMapPropagator()
except ModuleNotFoundError:  # of the extra
    pass

T = TypeVar("T")
_SCOPE = "consistent-messaging"


class Metric(NamedTuple):
    """The description of a metric. `unit` uses the notation of OpenTelemetry."""

    kind: Literal["counter", "gauge", "histogram"]
    unit: str
    labels: tuple[str, ...]
    help: str


_SECONDS, _MESSAGES = "s", "{message}"

METRICS: Mapping[str, Metric] = {
    "messages": Metric("counter", _MESSAGES, ("handler", "status"), "Deliveries; replays are `duplicate`."),
    "dead_letters": Metric("counter", _MESSAGES, ("handler", "reason"), "Rejected deliveries, by reason."),
    "published_outputs": Metric("counter", _MESSAGES, (), "Outputs that a target confirmed, with copies."),
    "conflicts": Metric("counter", "{conflict}", (), "Writes retried after a conflict."),
    "store_failures": Metric("counter", "{request}", (), "Requests retried after a store failure."),
    "store_request": Metric("histogram", _SECONDS, ("call",), "Requests to the store, by duration."),
    "held_messages": Metric("gauge", _MESSAGES, (), "Messages read and not yet acknowledged."),
    "oldest_message_age": Metric("gauge", _SECONDS, (), "Age of the oldest of these."),
    "source_lag": Metric("gauge", _MESSAGES, ("partition",), "Unacknowledged messages in Kafka or a queue."),
    "unavailable_services": Metric("gauge", "{service}", (), "Unavailable services: source, target, store."),
    "batches": Metric("counter", "{batch}", (), "Batches and epochs that ended and were published."),
    "last_batch": Metric("gauge", _SECONDS, (), "Duration of the last published batch or epoch."),
    "last_batch_end": Metric("gauge", _SECONDS, (), "Unix time when it was published."),
}
"""All metrics by name; `full_name` is the name in Prometheus, `consistent.NAME` that in OpenTelemetry."""

BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""The upper bounds of histograms, in seconds."""


def full_name(name: str) -> str:
    """Return the name of a metric in Prometheus."""
    kind, unit, *_ = METRICS[name]
    return f"consistent_{name}{'_seconds' if unit == 's' else ''}{'_total' if kind == 'counter' else ''}"


def _configured(provider: Any) -> Any:  # noqa: ANN401 - of either kind
    """Return the provider, or `None` for the API's placeholders, which record nothing."""
    return None if re.search("Proxy|NoOp", type(provider).__name__) else provider


@lru_cache(maxsize=4)
def _instruments(provider: Any) -> Mapping[str, Any]:  # noqa: ANN401 - a provider of meters
    meter, more = provider.get_meter(_SCOPE), {"explicit_bucket_boundaries_advisory": BUCKETS}
    return {
        name: getattr(meter, f"create_{kind}")(
            f"consistent.{name}", unit, text, **(more if kind == "histogram" else {})
        )
        for name, (kind, unit, _, text) in METRICS.items()
    }


def has_meters() -> bool:
    """Return whether the program has configured OpenTelemetry's metrics."""
    return otel is not None and _configured(otel_metrics.get_meter_provider()) is not None


class Metrics(AbstractContextManager["Metrics"]):
    """The metrics of a consumer or a job. No-op unless `is_on`.

    With `forwards`, OpenTelemetry records the metrics too. Workers do not forward, because their driver merges their
    metrics. With a `file`, the metrics continue from the content of the file. `write` and the end of a `with` block
    replace the file.
    """

    def __init__(self, *, is_on: bool = True, forwards: bool = True, file: Path | None = None) -> None:
        self.is_on, self._file = is_on, file
        # A histogram has a count for each bucket, and the sum.
        self._samples: dict[str, dict[tuple[str, ...], Any]] = {
            name: {} if each.labels else {(): 0.0} for name, each in METRICS.items()
        }
        self._instruments: Mapping[str, Any] = {}
        if is_on and forwards and has_meters():
            self._instruments = _instruments(otel_metrics.get_meter_provider())
        if file is not None:
            self._read(file)

    def __exit__(self, *_: object) -> None:
        self.write()

    def add(self, name: str, amount: float, *labels: str) -> None:
        """Increase a counter. `labels` are the values of its labels."""
        if self.is_on and amount:
            samples = self._samples[name]
            samples[labels] = samples.get(labels, 0.0) + amount
            self._forward(name, "add", amount, labels)

    def set(self, name: str, values: Mapping[tuple[str, ...], float]) -> None:
        """Replace all values of a gauge. The keys of `values` are the labels."""
        if self.is_on:
            self._samples[name] = dict(values)
            for labels, value in values.items():
                self._forward(name, "set", value, labels)

    def observe(self, name: str, seconds: float, *labels: str) -> None:
        """Add a duration to a histogram. `labels` are the values of its labels."""
        if self.is_on:
            sample = self._samples[name].setdefault(labels, [0.0] * (len(BUCKETS) + 2))
            sample[bisect_left(BUCKETS, seconds)] += 1
            sample[-1] += seconds
            self._forward(name, "record", seconds, labels)

    def _forward(self, name: str, verb: str, amount: float, labels: tuple[str, ...]) -> None:
        if self._instruments:
            attributes = dict(zip(METRICS[name].labels, labels, strict=True))
            getattr(self._instruments[name], verb)(amount, attributes)

    def handled(self, outcomes: Iterable[Outcome], made: int | None = None) -> None:
        """Count outcomes by handler and status. Processed ones beyond `made`, the new versions, count as duplicates."""
        if not self.is_on:
            return
        counts = Counter((each.handler, each.status, each.reason) for each in outcomes)
        for (handler, status, reason), count in counts.items():
            new = count if made is None or status is not Status.PROCESSED else min(made, count)
            self.count(handler, status, reason, new)
            self.count(handler, Status.DUPLICATE, None, count - new)

    def count(self, handler: str | None, status: str, reason: str | None, count: int) -> None:
        """Count `count` deliveries with this handler and status, and as dead letters if `reason` is given."""
        known = "" if handler is None or reason == Reason.UNKNOWN_HANDLER else handler  # else a sender's text
        self.add("messages", count, known, status)
        if reason is not None:
            self.add("dead_letters", count, known, reason)

    def retried(self, error: Exception) -> None:
        """Count an error that leads to a retry: a store failure if the store is unavailable, otherwise a conflict."""
        self.add("store_failures" if isinstance(error, StoreUnavailableError) else "conflicts", 1)

    def watching(self, table: Table) -> Table:
        """Return a table that measures its requests, or the table itself if metrics are off."""
        return _MeasuredTable(table, self) if self.is_on else table

    def merge(self, dumped: str) -> None:
        """Add the counters and histograms that a worker dumped."""
        for name, samples in json.loads(dumped or "{}").items():
            for labels, value in samples:
                if METRICS[name].kind == "counter":
                    self.add(name, value, *labels)
                elif self.is_on:
                    sample = self._samples[name].setdefault(tuple(labels), [0.0] * len(value))
                    sample[:] = map(sum, zip(sample, value, strict=True))

    def dump(self) -> str:
        """Return the counters and histograms as JSON, or "" if metrics are off."""
        kept = (name for name, metric in METRICS.items() if metric.kind != "gauge")
        samples = {name: [each for each in self._samples[name].items() if each[1]] for name in kept}
        return json.dumps(samples) if self.is_on else ""

    def text(self) -> str:
        """Return all metrics in Prometheus' text format."""
        lines = []
        for name, metric in METRICS.items():
            full = full_name(name)
            lines += [f"# HELP {full} {metric.help}", f"# TYPE {full} {metric.kind}"]
            for labels, value in sorted(self._samples[name].items()):
                own = tuple(zip(metric.labels, labels, strict=True))
                if metric.kind == "histogram":
                    *counts, total = value
                    for bound, count in zip((*BUCKETS, "+Inf"), accumulate(counts), strict=True):
                        lines.append(_line(f"{full}_bucket", (*own, ("le", str(bound))), count))
                    lines += [_line(f"{full}_sum", own, total), _line(f"{full}_count", own, sum(counts))]
                else:
                    lines.append(_line(full, own, value))
        return "".join(f"{line}\n" for line in lines)

    def write(self) -> None:
        """Replace the metrics file atomically, for the textfile collector of node_exporter. No-op without a file."""
        if self._file is not None:
            aside = self._file.with_name(f".{self._file.name}.{os.getpid()}")  # which the collector ignores
            with suppress(OSError):  # such as a full disk, for which no work may fail
                aside.write_text(self.text(), encoding="utf-8")
                aside.chmod(0o644)  # the collector runs as another user
                aside.replace(self._file)

    def _read(self, file: Path) -> None:
        if not file.absolute().parent.is_dir():
            raise UsageError(f"The folder of the metrics file {file} does not exist.")
        names = {full_name(name): name for name, each in METRICS.items() if each.kind != "histogram"}
        try:
            text = file.read_text(encoding="utf-8") if file.exists() else ""
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"The metrics file {file} cannot be read: {error}. Move it away.") from error
        for full, labels, value in _SAMPLE.findall(text):
            name = names.get(full)
            with suppress(ValueError):  # a line of another program
                values = tuple(json.loads(f'"{each}"', strict=False) for each in _LABEL.findall(labels))
                if name and len(values) == len(METRICS[name].labels) and isfinite(float(value)):
                    self._samples[name][values] = float(value)


OFF = Metrics(is_on=False)

_SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$", re.MULTILINE)
_LABEL = re.compile(r'\w+="((?:[^"\\]|\\.)*)"')
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def _line(name: str, labels: Sequence[tuple[str, str]], value: float) -> str:
    shown = ",".join(f'{label}="{text.translate(_ESCAPES)}"' for label, text in labels)
    return f"{name}{{{shown}}} {value:.15g}" if shown else f"{name} {value:.15g}"


class _MeasuredTable(InterceptedTable):
    def __init__(self, table: Table, metrics: Metrics) -> None:
        super().__init__(table)
        self._metrics = metrics

    async def _call(self, name: str, partition_key: str, call: Callable[[], Awaitable[T]]) -> T:
        began = time.perf_counter()
        try:
            return await super()._call(name, partition_key, call)
        finally:
            self._metrics.observe("store_request", time.perf_counter() - began, name)


# Spans, by OpenTelemetry's conventions for messaging.

_PROCESS = {"messaging.operation.name": "process", "messaging.operation.type": "process"}


def _tracer() -> Any:  # noqa: ANN401 - a tracer, or None
    return None if otel is None else _tracer_of(otel.get_tracer_provider())


@lru_cache(maxsize=4)
def _tracer_of(provider: Any) -> Any:  # noqa: ANN401 - as above
    return _configured(provider) and provider.get_tracer(_SCOPE)


Traced = tuple[Sequence[Envelope], Callable[[int, Outcome], None] | None]


def has_tracer() -> bool:
    """Return whether the program has configured OpenTelemetry's traces."""
    return _tracer() is not None


def message_spans(
    messages: Sequence[Envelope], to: str, attributes: Callable[[int], Mapping[str, Any]]
) -> AbstractContextManager[Traced]:
    """Context manager with a span for each message, linked to the producer's span.

    The producer's span is also the parent, unless there is a current span. `to` is the name of the handler or queue.
    `attributes` returns further attributes of the message at a position.

    Yields the messages, and a function that adds an outcome to the span at a position. The headers of the messages
    contain the new spans, so that outputs refer to them. If no spans are recorded, the messages are unchanged, and the
    function is None.
    """
    tracer = _tracer()
    return nullcontext((messages, None)) if tracer is None else _spans(tracer, messages, to, attributes)


@contextmanager
def _spans(
    tracer: Any,  # noqa: ANN401 - of OpenTelemetry
    messages: Sequence[Envelope],
    to: str,
    attributes: Callable[[int], Mapping[str, Any]],
) -> Iterator[Traced]:
    spans, traced = list[Any](), list[Envelope]()

    def note(position: int, outcome: Outcome) -> None:
        span, names = spans[position], ("handler", "business_id", "version", "status")
        span.set_attributes(_own({name: getattr(outcome, name) for name in names}))
        if outcome.reason is not None:
            span.set_attribute("error.type", outcome.reason.value)
            span.set_status(otel.StatusCode.ERROR, outcome.error)

    is_child = otel.get_current_span().get_span_context().is_valid
    with ExitStack() as stack:
        for position, message in enumerate(messages):
            context = _W3C.extract({name: str(value) for name, value in (message.headers or {}).items()})
            producer = otel.get_current_span(context).get_span_context()
            links, parent = [otel.Link(producer)] if producer.is_valid else [], None if is_child else context
            own = {"messaging.destination.name": to, "messaging.message.id": message.message_id, **_PROCESS}
            own |= attributes(position)
            span = tracer.start_span(f"process {to}", parent, otel.SpanKind.CONSUMER, own, links)
            carrier = dict(without_trace(message.headers) or {})
            _W3C.inject(carrier, otel.set_span_in_context(span))
            spans.append(span)
            traced.append(message._replace(headers=carrier))
        for span in spans:
            stack.enter_context(otel.use_span(span, end_on_exit=True))
        yield traced, note


@contextmanager
def batch_span(name: str, **attributes: str | int) -> Iterator[Callable[..., None]]:
    """Context manager that runs its block in a span.

    Yields a function that adds attributes to the span and links it to the producers of its messages. That function
    takes `find`, a callable that returns the `traceparent` of each message. `find` is called only if the span is
    recorded.
    """
    tracer = _tracer()
    if tracer is None:
        yield lambda *_, **__: None
        return
    own = {**_PROCESS, **_own(attributes)}
    with tracer.start_as_current_span(name, None, otel.SpanKind.CONSUMER, own) as span:

        def note(find: Callable[[], Iterable[str]], **counts: int) -> None:
            if span.is_recording():
                span.set_attributes(_own(counts))
                for traceparent in find():
                    context = _W3C.extract({"traceparent": traceparent})
                    span.add_link(otel.get_current_span(context).get_span_context())

        yield note


def _own(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {f"consistent.{name}": value for name, value in attributes.items() if value is not None}


# Logs.


def logs_json() -> bool:
    """Return whether events are logged as JSON, on standard error and in log files."""
    return os.environ.get("CONSISTENT_LOG_FORMAT") == "json"


class Lines(logging.Formatter):
    """Formats events as text, or as lines of JSON with the `fields` of `extra`."""

    def format(self, record: logging.LogRecord) -> str:
        """Format an event as one line, followed by the traceback, if any."""
        if not logs_json():
            # Only a traceback may have several lines.
            hidden = HIDDEN_IN_LINE.sub(
                lambda found: found[0].encode("unicode_escape").decode(), record.getMessage()
            )
            own = {"msg": hidden, "args": None}
            return super().format(logging.makeLogRecord({**vars(record), **own}))
        more = {"logger": record.name, **getattr(record, "fields", {})}
        if record.exc_info:
            more["traceback"] = self.formatException(record.exc_info)
        return event(record.getMessage(), level=record.levelname.lower(), **more)


def event(sentence: str, **fields: object) -> str:
    """Return an event as a line of JSON. The line is ASCII, so that a sender's text cannot forge or hide lines."""
    told = {"time": shown_time(system_clock()), "level": "info", "event": sentence, **fields}
    return json.dumps(told, default=str)
