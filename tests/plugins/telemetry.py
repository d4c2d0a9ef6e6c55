"""What OpenTelemetry records in a test, in memory."""

from __future__ import annotations

from typing import Any

import pytest


class Telemetry:
    """Finished spans, and the values of metrics."""

    def __init__(self) -> None:
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import InMemoryMetricReader
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import SimpleSpanProcessor
        from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

        self.exporter, self.reader = InMemorySpanExporter(), InMemoryMetricReader()
        self.tracers = TracerProvider(shutdown_on_exit=False)
        self.tracers.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.meters = MeterProvider([self.reader], shutdown_on_exit=False)

    @property
    def spans(self) -> list[Any]:
        return list(self.exporter.get_finished_spans())

    def metrics(self) -> dict[tuple[str, ...], Any]:
        """Return all values by name and labels; of a histogram the count."""
        data = self.reader.get_metrics_data()
        return {
            (metric.name, *map(str, (point.attributes or {}).values())): getattr(point, "value", None)
            or getattr(point, "count", 0)
            for resource in (data.resource_metrics if data else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
            for point in metric.data.data_points
        }


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Telemetry:
    """Let OpenTelemetry record what a test does."""
    from opentelemetry import metrics, trace

    telemetry = Telemetry()
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: telemetry.tracers)
    monkeypatch.setattr(metrics, "get_meter_provider", lambda: telemetry.meters)
    return telemetry


def samples(text: str) -> dict[tuple[str, ...], float]:
    """Return the samples of Prometheus' text by name and labels."""
    from prometheus_client.parser import text_string_to_metric_families

    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
