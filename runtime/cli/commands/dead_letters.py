"""`consistent letters`: list dead letters, redrive or discard them."""

from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from eventstore import Table
from runtime import dead_letters as stored
from runtime.batch_options import BatchOptions, TablePlace
from runtime.cli.batch_command import OF_ANY_BATCH, BatchChoices, command_on, table_of_dead_letters
from runtime.cli.checks import check_file, confirm, load_app, on_table, require_table
from runtime.cli.commands.publish import PublishTo, publish_done
from runtime.cli.console import Parts, Screen, counted, make_table
from runtime.cli.failures import TOO_MANY_DEAD_LETTERS
from runtime.cli.options import AppSpec, AsJson, Limit, Yes, only
from runtime.clock import moment, system_clock
from runtime.errors import UsageError
from runtime.ledger.ledger import Ledger
from runtime.messages.outcome import DeadLetterGroups, Reason
from runtime.options import flag, option
from runtime.retries import RetryPolicy


@dataclass(frozen=True)
class LetterOptions:
    """Options that select dead letters."""

    message: str | None = option("Only dead letters of the message with this id.", metavar="ID")
    reason: list[Reason] | None = option(
        "Only dead letters of this reason. May be repeated.", metavar="REASON"
    )
    handler: str | None = option("Only dead letters of this handler.", metavar="NAME")
    stream: str | None = option("Only dead letters of this object.", metavar="HANDLER/ID")
    older_than: int | None = option("Only dead letters last rejected over 7d, 24h ... ago.", parse="duration")
    newer_than: int | None = option(
        "Only dead letters first rejected in the last 3d, 12h ...", parse="duration"
    )

    def selection(self, *, must_choose: bool = False) -> stored.Selection:
        """Return the selection. Raises `UsageError` for an invalid stream or, with `must_choose`, if it selects all."""
        stream = None
        if self.stream is not None:
            handler, _, business_id = self.stream.partition("/")
            if not (handler and business_id):
                raise UsageError(f"{self.stream!r} is not a stream: use HANDLER/BUSINESS_ID.")
            stream = handler, business_id
        now = system_clock()
        until, since = (None if age is None else now - age for age in (self.older_than, self.newer_than))
        reasons = tuple(self.reason or ()) or None
        selection = stored.Selection(self.message, reasons, self.handler, stream, until, since)
        if must_choose and selection.is_all:
            raise UsageError(
                "Select dead letters with --message ID, --reason R, --handler H, --stream H/ID, --older-than AGE, "
                "--newer-than AGE, or --all."
            )
        return selection


@dataclass(slots=True)
class LettersReport:
    """The selected dead letters: counts by group, the first ones, and the number dropped over a stream's limit."""

    limit: int = 0
    is_grouped: bool = True
    listed: list[stored.FoundLetter] = field(default_factory=list)
    groups: DeadLetterGroups = field(default_factory=DeadLetterGroups)
    count: int = 0
    behind: int = 0
    beyond_limit: int = 0

    def add(self, found: stored.FoundLetter) -> None:
        """Count a dead letter in its group. If the report is not grouped, also list it, up to the limit."""
        letter = found.letter
        self.count += 1
        self.behind += found.behind is not None
        type_ = letter.envelope.type if letter.envelope else None
        self.groups.add(letter.reason, found.handler, type_, letter.error, letter.message_id)
        if not self.is_grouped and (not self.limit or self.count <= self.limit):
            self.listed.append(found)

    def document(self) -> dict[str, Any]:
        """Return the JSON form of the report: counts, groups and, if it is not grouped, the listed dead letters."""
        document: dict[str, Any] = {name: getattr(self, name) for name in ("count", "behind", "beyond_limit")}
        document["groups"] = [asdict(each) for each in self.groups.largest_first()]
        if not self.is_grouped:
            document["letters"] = [stored.describe_letter(each) for each in self.listed]
        return document

    def parts(self) -> Parts:
        """Yield the parts of the human-readable report."""
        if not self.count:
            yield "There are no such dead letters."
        elif self.is_grouped:
            groups = self.groups.largest_first()
            yield table_of_dead_letters(groups[: self.limit or None], self.count, "Letters")
        else:
            shown = len(self.listed)
            more = "" if shown == self.count else f", the first {shown:,} of {self.count:,}"
            rows = [_row(each) for each in self.listed]
            yield make_table(f"Letters{more}", tuple(rows[0]), rows)
        if self.behind:
            yield f"{counted(self.behind, 'letter')} must wait for the one that parks their stream."
        if self.beyond_limit:
            beyond = counted(self.beyond_limit, "delivery")
            yield f"{beyond} over the limit of their streams were not stored. They are in the outcomes only."


def _row(found: stored.FoundLetter) -> dict[str, Any]:
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


All = Annotated[bool, typer.Option("--all", help="All dead letters of the table.")]


def letters(
    *,
    states: TablePlace,
    chosen: LetterOptions,
    group: bool = flag("Show groups with the same reason, handler, type and error."),
    limit: Limit = 20,
    export: Path | None = option(
        "Write all selected dead letters to a file, as JSON lines for `consistent letters redrive --edit`.",
        dir_okay=False,
    ),
    as_json: AsJson = False,
) -> None:
    r"""List the dead letters of a table: rejected deliveries that can be redriven or discarded.

        consistent letters --store sqlite:///store.db --table games
        consistent letters --store sqlite:///store.db --table games \
            --reason invalid_body --export letters.jsonl

    Needs no Spark. Costs two requests for each 1,000 streams, and one for each stream with dead letters. If a dead
    letter parks its stream, later dead letters of the stream wait until this one is processed or discarded.
    """
    check_file(export)
    if export is not None and export.exists():
        raise UsageError(f"{export} exists and may contain edits: use another --export.")
    selection, report = chosen.selection(), LettersReport(limit, group)
    unfinished = export and export.with_name(f"{export.name}-unfinished")

    async def read(table: Table) -> None:
        with ExitStack() as stack:
            file = stack.enter_context(unfinished.open("w", encoding="utf-8")) if unfinished else None
            async for stream in stored.streams_with_letters(table, selection):
                report.beyond_limit += stream.beyond_limit
            async for found in stored.find_letters(table, selection):
                report.add(found)
                if file:
                    file.write(f"{stored.to_line(found)}\n")

    on_table(states, read)
    if export and unfinished:
        unfinished.rename(export)
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
    dry_run: bool = flag("Write nothing, and show what would be discarded."),
    as_json: AsJson = False,
) -> None:
    r"""Discard dead letters: delete the deliveries, which can then no longer be redriven.

        consistent letters discard --store sqlite:///store.db --table games \
            --reason invalid_body --older-than 30d --dry-run

    Redeliveries of a discarded message stay rejected, with the same reason. Discarding a dead letter that parks its
    stream frees the dead letters behind it: redrive or discard them too. Costs as much as `consistent letters`, and a
    query and a transaction for each stream with selected dead letters.
    """
    selection = chosen.selection(must_choose=not all_)
    screen, report, count = Screen(as_json), LettersReport(), 0

    async def look(table: Table) -> None:
        async for found in stored.find_letters(table, selection):
            report.add(found)

    on_table(states, look)
    screen.show(*report.parts())
    is_meant = report.count and not dry_run
    if is_meant:
        confirm(f"Discarding {counted(report.count, 'letter')}", yes=yes)
        count = on_table(states, lambda opened: stored.discard(opened, selection, RetryPolicy()))
    said = [f"{counted(count, 'letter')} discarded."] if is_meant else []
    if report.count and dry_run:
        said = ["Dry run: nothing was discarded."]
    screen.put({**report.document(), "discarded": count}, *said)


def redrive(
    *,
    app: AppSpec,
    batch: BatchChoices,
    options: Annotated[BatchOptions, only(*OF_ANY_BATCH, "guard", "algorithm")],
    chosen: LetterOptions,
    all_: All = False,
    edit: Path | None = option(
        "A file of `consistent letters --export` with edited messages, to handle instead of the originals. By default, "
        "only these dead letters are redriven.",
        dir_okay=False,
        exists=True,
        is_rare=True,
    ),
    dry_run: bool = flag("Write nothing, and show what would be redriven."),
    publish: PublishTo,
    as_json: AsJson = False,
) -> None:
    r"""Handle dead letters again after fixing their cause, each in its own handler.

        consistent letters redrive --app samples.shooting_range:app --cascade \
            --store sqlite:///store.db --table games --out outcomes --all

    A redrive is a batch. Processed dead letters are removed; rejected ones stay, with the new reason. Dead letters of
    one stream are handled in order of arrival. The selection is made once: a stopped redrive resumes with the same dead
    letters if it is run again with its id. With nothing to redrive, it starts neither a batch nor Spark, and exits with
    0. So a scheduler may call it after each batch (--reason handler_error --newer-than 3d). --publish URL also
    publishes the outputs.
    """
    is_resumed = not dry_run and _is_begun(batch)
    selection = chosen.selection(must_choose=not (all_ or edit is not None or is_resumed))
    edits = stored.Edits(()) if edit is None else stored.Edits.of(edit.read_bytes())
    only_edited = selection.is_all and not all_ and edit is not None
    request = stored.RedriveRequest(selection, edits, only_edited=only_edited)
    loaded = load_app(app)
    options = batch.options(options)
    require_table(batch.states)
    screen, report = Screen(as_json), LettersReport()

    async def look(table: Table) -> None:
        # A dry run counts all; a redrive needs to know only whether there is one, or that all edits are valid.
        async for found in stored.find_letters(table, request.selection):
            if request.takes(found):
                request.edits.mended(found)
                report.add(found)
                if not dry_run and edit is None:
                    return
        request.edits.check_used()

    if not is_resumed:
        on_table(batch.states, look)
        if edit is not None:
            rest = "" if len(edits.changed) == len(edits) else " The others are redriven unchanged."
            screen.note(f"Edited letters that differ: {len(edits.changed):,} of {len(edits):,}.{rest}")
        if dry_run or not report.count:
            said = ["Dry run: nothing was redriven."] if dry_run else []
            screen.put(report.document(), *report.parts(), *said)
            return
    batch.check(loaded, options)
    batch, target = publish.announced(batch, screen)
    from runtime.spark.redriving import redrive_letters

    step = "Selecting dead letters"
    with batch.carried_out(loaded, options, step, lambda of, new: redrive_letters(of, request, new)) as done:
        screen.put(done.report.document(), *done.report.parts())
        if target is None and done.report.record.counts.get("outputs"):
            screen.show(
                "The outputs are not published. To publish all outputs that a target lacks:",
                f"  {command_on('publish', batch.states, '--to', 'URL')}",
            )
        if publish_done(target, done, screen):
            raise typer.Exit(TOO_MANY_DEAD_LETTERS)


def _is_begun(batch: BatchChoices) -> bool:
    """Return whether a redrive with the given id has frozen its dead letters or is in the ledger."""
    id_ = batch.batch_id
    if id_ is None:
        return False
    from runtime.spark.commit import absolute_folder
    from runtime.spark.redriving import RedrivenLetters

    known = on_table(batch.states, lambda table: Ledger(table, system_clock).find(id_))
    return known is not None or RedrivenLetters(absolute_folder(batch.out), id_).are_frozen
