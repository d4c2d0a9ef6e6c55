"""Draw the pictures of the documentation into docs/pictures: `python scripts/pictures.py`.

Each picture is a list of boxes, arrows and lines of text at fixed positions. Colours follow the reader's colour scheme,
by a media query inside the SVG.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from pathlib import Path

from runtime.messages.sizes import KIB
from runtime.versions import limits

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "pictures"
WIDTH = 760
_LINE = 18
_LINES = "\n  "
_WIDEST = {"": 8.4, "bold": 9.2, "soft": 7.7, "mono": 8.0}
"""Pixels that a character takes on average in the widest of the fonts, by the class of a text."""

_STYLE = """\
    text { font: 14px system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; fill: #1f2328 }
    .bold { font-weight: 600 }
    .soft { font-size: 13px; fill: #59636e }
    .mono { font: 13px ui-monospace, SFMono-Regular, Menlo, "DejaVu Sans Mono", monospace }
    .middle { text-anchor: middle }
    rect { fill: #fff; stroke: #8c959f; stroke-width: 1.5 }
    .back { fill: #f6f8fa; stroke: #d1d9e0 }
    .blue { fill: #ddf4ff; stroke: #0969da }
    .green { fill: #dafbe1; stroke: #1a7f37 }
    .red { fill: #ffebe9; stroke: #cf222e }
    .amber { fill: #fff8c5; stroke: #9a6700 }
    .gone { fill: none; stroke-dasharray: 5 4 }
    .line { fill: none; stroke: #59636e; stroke-width: 1.5 }
    .mark { stroke: #9a6700; stroke-dasharray: 6 4 }
    .tip { fill: #59636e }
    .bolt { fill: #cf222e }
    @media (prefers-color-scheme: dark) {
      text { fill: #f0f6fc }
      .soft { fill: #9198a1 }
      rect { fill: #0d1117; stroke: #656c76 }
      .back { fill: #151b23; stroke: #3d444d }
      .blue { fill: #10233d; stroke: #4493f8 }
      .green { fill: #12261e; stroke: #3fb950 }
      .red { fill: #2d1517; stroke: #f85149 }
      .amber { fill: #272115; stroke: #d29922 }
      .gone { fill: none }
      .line { stroke: #9198a1 }
      .mark { stroke: #d29922 }
      .tip { fill: #9198a1 }
      .bolt { fill: #f85149 }
    }"""


def box(x: float, y: float, width: float, height: float, *lines: str, kind: str = "") -> str:
    """Return a rectangle with lines of text in its middle."""
    place = f'x="{x}" y="{y}" width="{width}" height="{height}"'
    first = y + height / 2 - _LINE * (len(lines) - 1) / 2 + 5
    texts = [_line(x + width / 2, first + number * _LINE, line, width) for number, line in enumerate(lines)]
    return _LINES.join([f'<rect class="{kind}" {place} rx="6"/>', *texts])


def text(x: float, y: float, *lines: str) -> str:
    """Return lines of text that begin at a point. A line may begin with its class: `bold:`, `soft:` or `mono:`."""
    return _LINES.join(_line(x, y + number * _LINE, line) for number, line in enumerate(lines))


def _line(x: float, y: float, line: str, room: float = 0) -> str:
    """Return a line of text, centred if it has the room of a box. Raises `ValueError` when it may not fit."""
    kind, _, words = line.partition(":") if line.partition(":")[0] in _WIDEST else ("", "", line)
    if len(words) * _WIDEST[kind] > (room or WIDTH - x):
        raise ValueError(f"There is no room for {words!r}: {len(words) * _WIDEST[kind]:.0f} pixels.")
    return f'<text class="{kind}{" middle" if room else ""}" x="{x}" y="{y}">{escape(words)}</text>'


def arrow(*points: tuple[float, float], kind: str = "", tip: bool = True) -> str:
    """Return a line through points."""
    end = ' marker-end="url(#tip)"' if tip else ""
    return f'<path class="line {kind}" d="M{"L".join(f"{x} {y}" for x, y in points)}"{end}/>'


def bolt(y: float) -> str:
    """Return a flash: here a process may die."""
    return f'<path class="bolt" d="M140 {y}l-12 14h7l-4 12 13-16h-8z"/>'


@dataclass(frozen=True)
class Picture:
    """A picture, with a description for readers who do not see it."""

    title: str
    description: str
    height: int
    parts: tuple[str, ...]

    def svg(self) -> str:
        """Return it as a file."""
        return f"""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {self.height}" width="{WIDTH}" height="{self.height}" \
role="img" aria-labelledby="title description">
  <title id="title">{escape(self.title)}</title>
  <desc id="description">{escape(self.description)}</desc>
  <style>
{_STYLE}
  </style>
  <defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">
    <path class="tip" d="M0 0 8 4 0 8z"/>
  </marker></defs>
  <rect class="back" x=".75" y=".75" width="{WIDTH - 1.5}" height="{self.height - 1.5}" rx="10"/>
  {_LINES.join(self.parts)}
</svg>
"""


# fmt: off
REPLAY = Picture(
    "A duplicate is replayed on the version before its own",
    "A stream has versions 1 to 3, made by messages m1 to m3. Message m2 is redelivered. The handler gets the state of "
    "version 1 and the clock, headers and captured values that were recorded with version 2. Outputs and next state "
    "are compared with the digests of version 2. Equal: the delivery is a duplicate, its outputs have the ids of the "
    "first time, and nothing is stored. Different: they are never published.",
    372,
    (
        text(24, 34, "bold:The stream of the raffle “spring”"),
        box(24, 50, 216, 68, "bold:version 1", "made by m1", "mono:names: Ada"),
        box(272, 50, 216, 68, "bold:version 2", "made by m2", "mono:names: Ada, Grace", kind="blue"),
        box(520, 50, 216, 68, "bold:version 3", "made by m3, a draw", "mono:names: none"),
        arrow((132, 118), (132, 150), (320, 150), (320, 196)),
        text(142, 142, "soft:the state before"),
        arrow((420, 118), (420, 196)),
        text(430, 142, "soft:the recorded clock, headers", "soft:and captured values"),
        box(24, 196, 180, 52, "bold:m2", "redelivered", kind="blue gone"),
        arrow((204, 222), (272, 222)),
        box(272, 196, 216, 52, "bold:handler", "soft:state, message, context"),
        arrow((488, 222), (520, 222)),
        box(520, 196, 216, 52, "as the digests", "of version 2 say?"),
        arrow((560, 248), (560, 270), (380, 270), (380, 294)),
        text(450, 264, "soft:equal"),
        arrow((664, 248), (664, 294)),
        text(672, 274, "soft:not"),
        box(272, 294, 216, 62, "bold:duplicate", "soft:same outputs, same ids;", "soft:nothing is stored",
            kind="green"),
        box(520, 294, 216, 62, "bold:nondeterministic", "soft:never published", kind="red"),
        text(24, 306, "soft:Guids and random numbers", "soft:are derived from the", "soft:message id: the same too."),
    ),
)

_TAIL, _STATE = (f"{size // KIB} KiB" for size in (limits.MAX_TAIL_BYTES, limits.MAX_HEAD_STATE_BYTES))
_VERSIONS, _HASHES = f"{limits.MAX_RUN_VERSIONS:,}", f"{limits.MAX_INDEX_HASHES:,}"

STREAM = Picture(
    "Rows of a stream: header, index and runs",
    "A stream has rows of three kinds. The header has the newest state and the tail: the newest versions, in a segment "
    "for each commit. An index row has a hash of each message id in runs. A run has older versions. One query reads "
    f"header and index; a run is read for duplicates in it, and for states over {_STATE}. A full tail becomes a run.",
    392,
    (
        text(24, 34, "bold:One partition, its rows in the order of their keys"),
        text(24, 112, "mono:SS-HEAD"),
        box(150, 52, 586, 112),
        text(164, 75, "soft:header: each commit replaces it, on the condition of its ETag"),
        box(164, 88, 128, 62, "bold:newest state", f"soft:up to {_STATE}", kind="green"),
        *(box(304 + 106 * n, 88, 98, 62, "bold:segment", "soft:a commit", kind="blue") for n in range(4)),
        text(24, 212, "mono:SS-IDX-…1"),
        box(150, 188, 440, 40, "soft:index: a 4-byte hash of each message id in the runs", kind="amber"),
        text(602, 204, "soft:one query reads", "soft:header and index"),
        text(24, 308, "mono:SS-SE-…1"),
        arrow((360, 150), (360, 176), (110, 176), (110, 258), (240, 258), (240, 276)),
        text(252, 262, "soft:a full tail becomes a run"),
        box(150, 276, 440, 52, "bold:run: older versions", "soft:ids, and compressed columns", kind="blue"),
        text(602, 298, "soft:read for duplicates", "soft:in it"),
        text(
            24, 358,
            f"soft:Tail: up to {_TAIL}, a segment for each commit. Run: up to {_VERSIONS} versions in a row.",
            f"soft:Index: up to {_HASHES} hashes in a row. Outputs are not stored: a replay gives them.",
        ),
    ),
)

HORIZON = Picture(
    "The horizon of a stream",
    "On an axis of the time at which messages were enqueued, versions 1 to 3 were cut. The horizon is the newest of "
    "their times plus the redelivery window. Versions 4 to 6 are kept. An unknown message from before the horizon is "
    "too late. A copy of version 4 is known by its id, and so a duplicate. An unknown message from after the horizon "
    "is processed.",
    404,
    (
        text(24, 34, "bold:Versions, by the time at which their messages were enqueued"),
        *(box(24 + 100 * n, 52, 92, 46, f"bold:version {n + 1}", "soft:cut", kind="gone") for n in range(3)),
        *(box(440 + 102 * n, 52, 92, 46, f"bold:version {n + 4}", "soft:kept", kind="blue") for n in range(3)),
        arrow((24, 118), (736, 118)),
        text(644, 138, "mono:enqueued_at"),
        arrow((270, 98), (270, 124), tip=False),
        arrow((270, 150), (408, 150)),
        text(96, 154, "mono:--redelivery-window"),
        arrow((408, 46), (408, 214), kind="mark", tip=False),
        text(418, 154, "bold:horizon"),
        arrow((404, 184), (24, 184)),
        text(24, 204, "soft:history may be gone here"),
        box(100, 226, 150, 40, "unknown message"),
        arrow((175, 266), (175, 300)),
        box(40, 300, 270, 62, "bold:too_late", "soft:it may be a copy of what was cut:", "soft:not handled",
            kind="amber"),
        box(404, 226, 164, 40, "copy of version 4", kind="blue gone"),
        arrow((486, 266), (486, 300)),
        box(404, 300, 164, 62, "bold:duplicate", "soft:its id is known,", "soft:at any time", kind="green"),
        box(588, 226, 148, 40, "unknown message"),
        arrow((662, 266), (662, 300)),
        box(588, 300, 148, 62, "bold:processed", "soft:it must be new", kind="green"),
        text(24, 388, "soft:Once a version without enqueued_at was cut, unknown messages without it are too_late."),
    ),
)

MESSAGE = Picture(
    "The life of a message",
    "A delivery that is not valid is a dead letter. One with a known id is replayed and is a duplicate; if its replay "
    "differs or its body is another one, it is a dead letter. An unknown one that is not newer than the horizon is too "
    "late. Any other is handled: when the handler returns, it is processed, otherwise it is a dead letter. A redrive "
    "handles a dead letter again; a discard gives it up.",
    432,
    (
        box(24, 36, 90, 56, "bold:delivery", kind="blue"),
        *(arrow((x, 64), (x + 34, 64)) for x in range(114, 700, 124)),
        box(148, 36, 90, 56, "valid?"),
        box(272, 36, 90, 56, "id known?"),
        box(396, 36, 90, 56, "after the", "horizon?"),
        box(520, 36, 90, 56, "handler", "returns?"),
        box(644, 36, 94, 56, "bold:processed", "soft:a version", kind="green"),
        *(text(242 + 124 * n, 58, f"soft:{word}") for n, word in enumerate(("yes", "no", "yes", "yes"))),
        arrow((319, 92), (319, 132)),
        text(327, 116, "soft:yes: replay"),
        box(232, 132, 174, 56, "bold:duplicate", "soft:nothing is stored", kind="green"),
        arrow((442, 92), (442, 132)),
        text(450, 116, "soft:no"),
        box(418, 132, 116, 56, "bold:too_late", "soft:not stored", kind="amber"),
        arrow((196, 92), (196, 244)),
        text(204, 116, "soft:no"),
        arrow((319, 188), (319, 244)),
        text(327, 208, "soft:another body, or", "soft:the replay differs"),
        arrow((542, 92), (542, 244)),
        text(550, 228, "soft:no"),
        arrow((590, 244), (590, 92)),
        text(598, 150, "bold:redrive", "soft:handles it", "soft:again"),
        box(148, 244, 462, 62, "bold:dead_letter, with a reason",
            "soft:kept in the table; each redelivery gets the same rejection", kind="red"),
        arrow((380, 306), (380, 344)),
        text(388, 330, "bold:discard"),
        box(240, 344, 280, 48, "soft:its delivery is deleted,", "soft:its message stays rejected", kind="gone"),
        text(24, 416,
            "soft:Not valid: no readable envelope or body, no handler for the type, no business id, too large."),
    ),
)

BATCH = Picture(
    "The life of a batch",
    "A batch that was begun is started. In each round its messages are handled, the ledger decides which attempt "
    "counts, its files are put in place, and the round is committed; with a cascade the outputs are the messages of "
    "the next round. After the last round it is published. A batch that was killed stays started and is run again "
    "with its id. A batch that is started can be abandoned.",
    384,
    (
        box(24, 82, 112, 56, "bold:begin", "soft:run, stream", kind="blue"),
        arrow((136, 110), (168, 110)),
        box(168, 24, 424, 208),
        text(184, 50, "bold:started"),
        box(184, 66, 180, 52, "handle messages,", "store versions"),
        arrow((364, 92), (396, 92)),
        box(396, 66, 180, 52, "the ledger decides", "which attempt counts"),
        arrow((486, 118), (486, 164)),
        box(396, 164, 180, 52, "put its outcomes", "in place"),
        arrow((396, 190), (364, 190)),
        box(184, 164, 180, 52, "the ledger commits", "the round"),
        arrow((274, 164), (274, 118)),
        text(284, 146, "soft:--cascade: next round"),
        arrow((592, 110), (624, 110)),
        box(624, 82, 112, 56, "bold:published", "soft:immutable", kind="green"),
        arrow((220, 232), (220, 272)),
        arrow((290, 272), (290, 232)),
        box(24, 272, 324, 80, "bold:killed: it stays started", "soft:run it again with its --batch-id:",
            "soft:committed rounds and versions are kept", kind="amber"),
        arrow((486, 232), (486, 272)),
        text(496, 258, "mono:batches --abandon ID"),
        box(372, 272, 364, 80, "bold:abandoned", "soft:nothing is published, its versions stay;",
            "soft:a later batch publishes their outputs", kind="red"),
        text(24, 374, "soft:With --strict, a batch with too many dead letters stays started too."),
    ),
)

_STEPS = (
    *("1  load the stream", "2  handle its messages", "3  store the versions", "4  write outcomes"),
    *("5  decide the attempt", "6  put it in place", "7  commit the round"),
)


def _crash(after: int, *lines: str) -> str:
    y = 60 + 88 * (after - 1)
    return _LINES.join([bolt(y + 12), text(290, y + 22, *lines)])


CRASH = Picture(
    "Where a crash may come, and what happens then",
    "The steps of a batch: load, handle, store, write outcomes, decide the attempt, put it in place, commit the round. "
    "After a crash before the store the messages are handled as new. After the store the next attempt replays the "
    "versions and has the same outputs. Once the ledger has decided, a resumed batch puts that attempt in place. When "
    "the store does not answer, or another worker was first, the worker loads and decides again.",
    648,
    (
        *(
            box(24, 24 + 88 * n, 226, 36, f"bold:{step}", kind="blue" * (step[0] == "3"))
            for n, step in enumerate(_STEPS)
        ),
        *(arrow((100, 60 + 88 * n), (100, 112 + 88 * n)) for n in range(len(_STEPS) - 1)),
        _crash(1, "bold:Nothing has happened.", "soft:The messages are handled again, as new."),
        _crash(2, "bold:Nothing is stored.", "soft:The messages are handled again, as new."),
        text(290, 214, "bold:No answer, or a conflict with another worker:",
            "soft:drop the result, load and decide again."),
        _crash(3, "bold:Versions are stored, outputs are not published.",
            "soft:The next attempt replays: same ids and bodies."),
        _crash(4, "bold:Its files do not count.", "soft:The next attempt replays, and has the same outcomes."),
        _crash(5, "bold:The attempt counts.", "soft:When the batch is resumed, it is put in place."),
        _crash(6, "bold:Readers may see the round already.", "soft:Putting it in place again is a no-op."),
        text(290, 566, "bold:After the last round the batch is published:", "soft:its outcomes are immutable."),
        text(24, 626,
            "soft:A task that Spark runs twice is the same case: both compute the same, one attempt counts."),
    ),
)
# fmt: on

PICTURES = {
    "replay": REPLAY, "stream": STREAM, "horizon": HORIZON, "message": MESSAGE, "batch": BATCH, "crash": CRASH,
}  # fmt: skip

if __name__ == "__main__":
    for name, picture in PICTURES.items():
        (FOLDER / f"{name}.svg").write_text(picture.svg())
