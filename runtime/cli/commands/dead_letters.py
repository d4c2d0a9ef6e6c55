"""`consistent letters`, `redrive` and `letters discard`: list dead letters, handle them again, or give them up."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import RenderableType

from eventstore import Table
from runtime.batch_options import BatchOptions, TablePlace
from runtime.cli.batch_command import OF_ANY_BATCH, BatchChoices, command_on, table_of_dead_letters
from runtime.cli.checks import check_file, confirm, load_app, on_table, require_table
from runtime.cli.commands.publish import PublishTo, publish_done
from runtime.cli.console import Screen, counted, make_table, moment
from runtime.cli.failures import TOO_MANY_DEAD_LETTERS
from runtime.cli.options import AppSpec, AsJson, Limit, Yes, only
from runtime.clock import system_clock
from runtime.dead_letters import (
    Edits,
    FoundLetter,
    RedriveRequest,
    Selection,
    describe_letter,
    find_letters,
    streams_with_letters,
    to_line,
)
from runtime.dead_letters import discard as give_up
from runtime.errors import UsageError
from runtime.ledger.ledger import Ledger
from runtime.messages.outcome import DeadLetterGroups, Reason
from runtime.options import option
from runtime.retries import RetryPolicy


@dataclass(frozen=True)
class LetterOptions:
    """Which dead letters are meant."""

    message: str | None = option("Only letters of the message with this id.", default=None, metavar="ID")
    reason: list[Reason] | None = option(
        "Only letters with this reason, or with one of several.", default=None, metavar="REASON"
    )
    handler: str | None = option("Only letters of this handler.", default=None, metavar="NAME")
    stream: str | None = option(
        "Only letters of the stream of this handler and business object.", default=None, metavar="HANDLER/ID"
    )
    older_than: int | None = option(
        "Only letters refused last 7d, 24h ... ago.", default=None, parse="duration", metavar="AGE"
    )
    newer_than: int | None = option(
        "Only letters refused first less than 3d, 12h ... ago.", default=None, parse="duration", metavar="AGE"
    )

    def selection(self, *, must_choose: bool = False) -> Selection:
        """Return the letters that are meant.

        Raises `UsageError` for what names no stream, and with `must_choose` when nothing says which letters are meant.
        """
        stream = None
        if self.stream is not None:
            handler, _, business_id = self.stream.partition("/")
            if not (handler and business_id):
                raise UsageError(f"{self.stream!r} names no stream: write HANDLER/BUSINESS_ID.")
            stream = handler, business_id
        now = system_clock()
        until, since = (None if age is None else now - age for age in (self.older_than, self.newer_than))
        reasons = tuple(self.reason or ()) or None
        selection = Selection(self.message, reasons, self.handler, stream, until, since)
        if must_choose and selection.is_all:
            raise UsageError(
                "Say which letters: --message ID, --reason R, --handler H, --stream H/ID, --older-than AGE, "
                "--newer-than AGE, or --all."
            )
        return selection


@dataclass(slots=True)
class LettersReport:
    """Letters that were found: the first of them, all in groups, and how many were not kept."""

    limit: int = 0
    is_grouped: bool = True
    listed: list[FoundLetter] = field(default_factory=list)
    groups: DeadLetterGroups = field(default_factory=DeadLetterGroups)
    count: int = 0
    behind: int = 0
    beyond_limit: int = 0

    def add(self, found: FoundLetter) -> None:
        """Take another letter into its group, and list it up to the limit."""
        letter = found.letter
        self.count += 1
        self.behind += found.behind is not None
        type_ = letter.envelope.type if letter.envelope else None
        self.groups.add(letter.reason, found.handler, type_, letter.error, letter.message_id)
        if not self.is_grouped and (not self.limit or self.count <= self.limit):
            self.listed.append(found)

    def document(self) -> dict[str, Any]:
        """Return the report for JSON."""
        document: dict[str, Any] = {
            "count": self.count,
            "behind": self.behind,
            "beyond_limit": self.beyond_limit,
            "groups": [asdict(each) for each in self.groups.largest_first()],
        }
        if not self.is_grouped:
            document["letters"] = [describe_letter(each) for each in self.listed]
        return document

    def parts(self) -> Iterator[RenderableType]:
        """Yield the report for people."""
        if not self.count:
            yield "There are no such letters."
        elif self.is_grouped:
            groups = self.groups.largest_first()
            yield table_of_dead_letters(groups[: self.limit or None], self.count, "Letters")
        else:
            shown = len(self.listed)
            more = "" if shown == self.count else f", the first {shown:,} of {self.count:,}"
            rows = [_row(each) for each in self.listed]
            yield make_table(f"Letters{more}", tuple(rows[0]), rows)
        if self.behind:
            yield f"{counted(self.behind, 'letter')} cannot be handled before the one that parks their stream."
        if self.beyond_limit:
            yield (
                f"Beyond the limit of their streams, {counted(self.beyond_limit, 'delivery')} in all were not kept: "
                f"they are in the outcomes only."
            )


def _row(found: FoundLetter) -> dict[str, Any]:
    letter, behind = found.letter, found.behind
    return {
        "handler": found.handler or "(none)",
        "business id": found.business_id,
        "letter": found.name,
        "message": letter.message_id or None,
        "type": letter.envelope.type if letter.envelope else None,
        "reason": letter.reason.value,
        "refused": moment(letter.refused_at),
        "tries": letter.tries,
        "behind": None if behind is None else f"{behind.number}: {behind.message_id}",
        "error": letter.error,
    }


All = Annotated[bool, typer.Option("--all", help="All letters of the table.")]


def letters(
    *,
    states: TablePlace,
    chosen: LetterOptions,
    group: bool = option(
        "Show groups of one reason, handler, type and error in place of letters.", default=False
    ),
    limit: Limit = 20,
    export: Path | None = option(
        "Write all letters that are asked for to a file, as JSON lines that `consistent letters redrive --edit` "
        "takes.",
        default=None,
        metavar="FILE",
        dir_okay=False,
    ),
    as_json: AsJson = False,
) -> None:
    r"""List the letters of a table: deliveries that were refused, and wait to be redriven or discarded.

        consistent letters --store sqlite:///store.db --table games
        consistent letters --store sqlite:///store.db --table games \
            --reason invalid_body --export letters.jsonl

    It needs no Spark: two requests for each 1,000 streams, and one for each stream that has letters. A letter that is
    behind another waits until that is processed or discarded, as it parks the stream.
    """
    check_file(export)
    if export is not None and export.exists():
        raise UsageError(f"{export} is there already, and may hold edits: choose another --export.")
    selection, report = chosen.selection(), LettersReport(limit, group)

    async def read(table: Table) -> None:
        with ExitStack() as stack:
            file = stack.enter_context(export.open("w", encoding="utf-8")) if export else None
            async for stream in streams_with_letters(table, selection):
                report.beyond_limit += stream.beyond_limit
            async for found in find_letters(table, selection):
                report.add(found)
                if file:
                    file.write(f"{to_line(found)}\n")

    on_table(states, read)
    screen = Screen(as_json)
    screen.put(report.document(), *report.parts())
    if export is not None:
        screen.note(f"Wrote {counted(report.count, 'letter')} to {export}.")


def discard(
    *,
    states: TablePlace,
    chosen: LetterOptions,
    all_: All = False,
    yes: Yes = False,
    dry_run: bool = option("Write nothing, and say what would be discarded.", default=False),
    as_json: AsJson = False,
) -> None:
    r"""Give letters up: their deliveries are deleted, and can never be redriven.

        consistent letters discard --store sqlite:///store.db --table games \
            --reason invalid_body --older-than 30d --dry-run

    A redelivery of such a message stays refused, with the reason that its letter had. What waits behind a letter that
    parks its stream is free once that is discarded: redrive it, or discard it too. It costs what `consistent letters`
    does, and a query and a transaction for each stream that has such letters.
    """
    selection = chosen.selection(must_choose=not all_)
    screen, report, count = Screen(as_json), LettersReport(), 0

    async def look(table: Table) -> None:
        async for found in find_letters(table, selection):
            report.add(found)

    on_table(states, look)
    screen.show(*report.parts())
    is_meant = report.count and not dry_run
    if is_meant:
        confirm(f"Discarding {counted(report.count, 'letter')}", yes=yes)
        count = on_table(states, lambda opened: give_up(opened, selection, RetryPolicy()))
    said = [f"{counted(count, 'letter')} discarded."] if is_meant else []
    if report.count and dry_run:
        said = ["Nothing was discarded: this is what would be."]
    screen.put({**report.document(), "discarded": count}, *said)


def _note_changes(edits: Edits, screen: Screen) -> None:
    many = len(edits.changed)
    changes = "changes its" if many == 1 else "change their"
    rest = "" if many == len(edits) else " The others are redriven as they were."
    lines = "edited line" if len(edits) == 1 else "edited lines"
    screen.note(f"{many:,} of {len(edits):,} {lines} {changes} letter.{rest}")


def redrive(
    *,
    app: AppSpec,
    batch: BatchChoices,
    options: Annotated[BatchOptions, only(*OF_ANY_BATCH, "guard", "algorithm")],
    chosen: LetterOptions,
    all_: All = False,
    edit: Path | None = option(
        "Lines that `consistent letters --export` wrote, with messages mended: each is handled in place of "
        "its letter's. Without other choices, these letters are redriven.",
        default=None,
        metavar="FILE",
        dir_okay=False,
        exists=True,
        is_rare=True,
    ),
    dry_run: bool = option("Write nothing, and say what would be redriven.", default=False),
    publish: PublishTo,
    as_json: AsJson = False,
) -> None:
    r"""Handle letters again, once their cause is mended, each in its own handler.

        consistent letters redrive --app samples.shooting_range:app --cascade \
            --store sqlite:///store.db --table games --out outcomes --all

    A redrive is a batch. A letter that is processed is a letter no more; one that is refused again stays, with the new
    reason. Letters of one stream are handled in the order in which they came. Which letters they are is decided once:
    a redrive that was stopped goes on with the same ones when it is run again with its id. Where there are none, it
    begins no batch and no Spark, and exits with 0: so a scheduler may call it after each batch, for letters whose
    cause may come late (--reason handler_error --newer-than 3d). With --publish URL its outputs are published too.
    """
    is_chosen = all_ or edit is not None or batch.batch_id is not None
    selection = chosen.selection(must_choose=not is_chosen)
    edits = Edits(()) if edit is None else Edits.of(edit.read_bytes())
    request = RedriveRequest(selection, edits, only_edited=selection.is_all and not all_ and edit is not None)
    loaded = load_app(app)
    options = batch.options(options)
    require_table(batch.states)
    screen, report = Screen(as_json), LettersReport()

    async def look(table: Table) -> None:
        """Count what would be redriven, and check the edits as a redrive does; one is enough for a redrive."""
        async for found in find_letters(table, request.selection):
            if request.takes(found):
                request.edits.mended(found)
                report.add(found)
                if not dry_run and edit is None:
                    return
        request.edits.check_used()

    id_ = batch.batch_id
    if dry_run or not (id_ and on_table(batch.states, lambda table: Ledger(table, system_clock).find(id_))):
        on_table(batch.states, look)
        if edit is not None:
            _note_changes(edits, screen)
        if dry_run or not report.count:
            said = ["Nothing was redriven: this is what would be."] if dry_run else []
            screen.put(report.document(), *report.parts(), *said)
            return
    batch.check(loaded, options)
    publish.find("", batch.states)  # what is no target is refused before the batch is announced
    batch = batch.announced(screen)
    target = publish.find(batch.batch_id or "", batch.states)
    from runtime.spark.redriving import redrive_letters

    step = "Choosing the letters"
    with batch.carried_out(loaded, options, step, lambda of, new: redrive_letters(of, request, new)) as done:
        screen.put(done.report.document(), *done.report.parts())
        if target is None and done.report.record.counts.get("outputs"):
            screen.show(
                "Its outputs are in the outcomes only. To publish all outputs that a target has not got:",
                f"  {command_on('publish', batch.states, '--to', 'URL')}",
            )
        if publish_done(target, done, screen):
            raise typer.Exit(TOO_MANY_DEAD_LETTERS)
