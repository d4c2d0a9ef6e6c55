"""One plot for each series: the time of a message beside the requests of a stream and batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from benchmarks.growth.curve import Curve, Point

_BLUE, _ORANGE, _RED, _GREY = "#1f5fa8", "#c8681a", "#b3202a", "#9aa0a6"
_DPI = 80
_WIDE_SPAN = 100
_COLUMNS = {2: 2, 3: 3, 4: 2}


@dataclass(frozen=True, slots=True)
class Panel:
    """What one panel shows of each point: the values of all turns, of which the middle is drawn in their range."""

    label: str
    values: Callable[[Point], Sequence[float]]
    is_log: bool = True
    colour: str = _BLUE


_TIME = Panel("µs for a message", lambda point: point.times)
_REQUESTS = Panel("requests for a stream and batch", lambda point: [point.requests], is_log=False)
_READ = Panel("bytes read for a stream and batch", lambda point: [point.bytes_read], colour=_ORANGE)
_HISTORY = Panel(
    "µs to read the history, for a message",
    lambda point: [cost.facts["read_microseconds"] for cost in point.timed],
    colour=_ORANGE,
)
_STORED = Panel(
    "bytes stored for a message",
    lambda point: [cost.facts["bytes_per_message"] for cost in point.timed],
    colour=_ORANGE,
)
_KEPT = Panel("versions kept", lambda point: [cost.facts["versions"] for cost in point.timed], is_log=False)
_SIZE = Panel(
    "bytes that the stream takes",
    lambda point: [cost.facts["stored_bytes"] for cost in point.timed],
    is_log=False,
    colour=_ORANGE,
)
_OF_A_BATCH = (
    Panel("µs for a batch and a truncation", lambda point: point.times),
    Panel("requests to the ledger", lambda point: [point.requests], is_log=False),
    Panel("bytes read", lambda point: [point.bytes_read], colour=_ORANGE),
    Panel(
        "bytes of memory that the driver takes for it",
        lambda point: [cost.facts["memory_bytes"] for cost in point.timed],
        colour=_ORANGE,
    ),
)
_PANELS: Mapping[str, Sequence[Panel]] = {
    "history": (_TIME, _REQUESTS, _READ),
    "small-appends": (_TIME, _REQUESTS, _HISTORY, _STORED),
    "ledger": _OF_A_BATCH,
    "under-policy": (_TIME, _REQUESTS, _KEPT, _SIZE),
}


def draw(curve: Curve, folder: Path) -> Path:
    """Draw a series into a file named for it and return its path."""
    panels = _PANELS.get(curve.name, (_TIME, _REQUESTS))
    columns = _COLUMNS[len(panels)]
    rows = len(panels) // columns
    figure = Figure(figsize=(4.2 * columns, 3.4 * rows), layout="constrained")
    figure.suptitle(curve.title, fontsize=12)
    for number, panel in enumerate(panels, start=1):
        axes = figure.add_subplot(rows, columns, number)
        _draw_panel(axes, curve, panel)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{curve.name}.png"
    figure.savefig(path, dpi=_DPI, metadata={"Software": None})
    return path


def _draw_panel(axes: Axes, curve: Curve, panel: Panel) -> None:
    kept = [point for point in curve.points if point.refused is None]
    refused = [point for point in curve.points if point.refused is not None]
    _draw_line(axes, kept, panel)
    for point in refused:
        (size, middle, *_) = _range(point, panel)
        axes.plot([size], [middle], "x", color=_RED, markersize=8, markeredgewidth=2)
        axes.annotate(
            f"{point.refused}\n(dead letter)",
            (size, middle),
            xytext=(-8, 0),
            textcoords="offset points",
            ha="right",
            va="center",
            color=_RED,
            fontsize=8,
        )
    axes.set_xlabel(curve.quantity)
    axes.set_title(panel.label, fontsize=10)
    _scale_x(axes, [point.size for point in curve.points])
    _scale_y(axes, panel)
    axes.grid(visible=True, color=_GREY, alpha=0.3, linewidth=0.6)


def _draw_line(axes: Axes, points: Sequence[Point], panel: Panel) -> None:
    ranges = [found for point in points if (found := _range(point, panel))[1] > 0]
    sizes, middles, lows, highs = zip(*ranges, strict=True)
    axes.fill_between(sizes, lows, highs, color=panel.colour, alpha=0.2, linewidth=0)
    axes.plot(sizes, middles, "o-", color=panel.colour, markersize=4, linewidth=1.5)


def _range(point: Point, panel: Panel) -> tuple[float, float, float, float]:
    values = sorted(panel.values(point))
    return point.size, values[len(values) // 2], values[0], values[-1]


def _scale_x(axes: Axes, sizes: Sequence[int]) -> None:
    least = min(size for size in sizes if size > 0)
    if max(sizes) / least <= _WIDE_SPAN:
        return
    if 0 in sizes:
        axes.set_xscale("symlog", linthresh=least, linscale=0.4)
    else:
        axes.set_xscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(_short))


def _scale_y(axes: Axes, panel: Panel) -> None:
    low, high = axes.dataLim.intervaly
    if not panel.is_log:
        axes.set_ylim(0, max(4.0, high * 1.25))
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
        return
    # At least two decades, so that noise does not look like growth.
    middle = (low * high) ** 0.5
    axes.set_yscale("log")
    axes.set_ylim(min(low / 1.5, middle / 10), max(high * 1.5, middle * 10))
    axes.yaxis.set_major_formatter(FuncFormatter(_short))


def _short(value: float, _position: object) -> str:
    for limit, letter in ((1e6, "M"), (1e3, "k")):
        if value >= limit:
            return f"{value / limit:g} {letter}"
    return f"{value:g}"
