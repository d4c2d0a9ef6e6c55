"""`consistent outcomes` and `consistent batches`: results of batches, and their progress."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from shlex import quote
from typing import Any

from runtime.batch_options import TablePlace
from runtime.cli.batch_command import command_on, command_with, counts_text, table_of_dead_letters
from runtime.cli.checks import confirm, on_table
from runtime.cli.console import Parts, Screen, counted, make_table
from runtime.cli.failures import NotPossibleError, needing
from runtime.cli.options import AsJson, Limit, Yes
from runtime.clock import system_clock
from runtime.errors import UsageError
from runtime.file_systems import within
from runtime.ledger.ledger import STATE_BASED, BatchRecord, BatchStatus, Ledger, describe
from runtime.messages.outcome import Status, group_dead_letters
from runtime.options import REQUIRED, flag, option
from runtime.outcome_files import KINDS, OutcomeFiles, OutcomeFilter, OutcomeKind, Row
from runtime.publishing.records import prune_publications, publications_of


def batches(
    *,
    states: TablePlace,
    limit: int = option("List at most N batches, newest first.", default=50, min=1),
    abandon: str | None = option("End a batch without publishing it. Its versions stay.", metavar="ID"),
    prune: int | None = option("Delete rows of batches that ended over 30d, 24h ... ago.", parse="duration"),
    dry_run: bool = flag("With --prune or --abandon: write nothing, and show what would change."),
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """List the batches of a table: unfinished ones first, then the newest.

        consistent batches --store sqlite:///store.db --table games

    A crashed batch stays `started`: run it again with its id to resume it. Until it ends, its versions are not
    truncated, and other batches fail if they cannot replay a message of these versions. Also lists the targets to which
    outputs were published. Costs one request for each listed batch, and one for each of its publications.

    --prune AGE deletes the ledger rows of batches that ended longer ago, and the records of their publications,
    including the dead letters of targets. Versions and outcomes stay. The id of a pruned batch counts as new, and needs
    another --out.
    """
    screen = Screen(as_json)
    if prune is not None and abandon is not None:
        raise UsageError("--prune and --abandon exclude each other: use one of them.")
    if prune is not None:
        _prune(screen, states, system_clock() - prune, dry_run=dry_run, yes=yes)
        return
    if abandon is not None:
        _abandon(screen, states, abandon, dry_run=dry_run, yes=yes)
        return
    if dry_run:
        raise UsageError("--dry-run needs --prune or --abandon: add one of the two.")
    records = on_table(states, lambda table: Ledger(table, system_clock).batches(limit))
    known = on_table(states, lambda table: publications_of(table, {each.batch_id for each in records}))
    described = [describe(record) | {"publications": known[record.batch_id]} for record in records]
    screen.put({"batches": described})
    _show_batches(screen, states, records, described)
    if len(records) == limit:
        screen.show(f"These are the newest {limit:,} batches. Use --limit to list more.")
    for each in (record for record in records if not record.is_finished):
        again = f"run its log again with --batch-id {each.batch_id} --out {quote(each.out)}"
        if each.is_epoch:
            again = "start its query again"
        screen.show(
            f"Batch {each.batch_id} has not ended. If it is not running, {again} to resume it, or abandon it:",
            f"  {command_with('--abandon', each.batch_id)}",
        )


def _show_batches(
    screen: Screen, states: TablePlace, records: Sequence[BatchRecord], described: Sequence[dict[str, Any]]
) -> None:
    if not records:
        screen.show(f"The table {states.table} has no batches.")
        return
    columns = ["batch_id", "status", "rounds", "started_at", "updated_at", "outcomes", "published to", "out"]
    rows, unpublished = [], []
    for each, record in zip(described, records, strict=True):
        parts = {one["target"]: (one["slices_sent"], one["slices"]) for one in each["publications"]}
        targets = [
            to if sent == all_ else f"{to} ({sent} of {all_} slices)" for to, (sent, all_) in parts.items()
        ]
        is_out = any(sent == all_ for sent, all_ in parts.values())
        row = {"outcomes": counts_text(record.counts) or None, "published to": ", ".join(targets) or None}
        rows.append(each | row)
        if record.status is BatchStatus.PUBLISHED and record.counts.get("outputs") and not is_out:
            unpublished.append(record.batch_id)
    if not any(each["publications"] for each in described):  # the table never publishes
        columns.remove("published to")
        unpublished = []
    screen.show(make_table(f"Batches of {states.table}", columns, rows))
    if unpublished:
        screen.show(
            f"Unpublished outputs: {', '.join(unpublished)}. To publish all outputs that a target lacks:",
            f"  {command_on('publish', states, '--to', 'URL')}",
        )


def _prune(screen: Screen, states: TablePlace, before: int, *, dry_run: bool, yes: bool) -> None:
    old = on_table(states, lambda table: Ledger(table, system_clock).prune(before, dry_run=True))
    if dry_run:
        said = f"Dry run: {counted(old, 'batch')} would be pruned."
        screen.put({"dry_run": True, "pruned": 0, "would_be_pruned": old}, said)
        return
    confirm(f"Deleting {counted(old, 'batch')} from the ledger of {states.table}", yes=yes or not old)
    pruned = on_table(states, lambda table: Ledger(table, system_clock).prune(before))
    publications = on_table(states, lambda table: prune_publications(table, system_clock))
    said = f"Pruned {counted(pruned, 'batch')} from the ledger of {states.table}."
    screen.put({"pruned": pruned, "publications": publications}, said)


def _abandon(screen: Screen, states: TablePlace, batch_id: str, *, dry_run: bool, yes: bool) -> None:
    current = on_table(states, lambda table: Ledger(table, system_clock).get(batch_id))
    if dry_run:
        then = "stays so" if current.is_finished else "would be abandoned"
        screen.put(describe(current), f"Dry run: batch {batch_id} is {current.status}, and {then}.")
        return
    confirm(f"Abandoning batch {batch_id}, with its unpublished outputs,", yes=yes or current.is_finished)
    record = on_table(states, lambda table: Ledger(table, system_clock).abandon(batch_id))
    screen.put(describe(record), f"Batch {batch_id} is abandoned. {_what_is_left(record)}")


def _what_is_left(record: BatchRecord) -> str:
    if record.algorithm == STATE_BASED:
        return "Its messages can be run under another id."
    left = "`consistent run --unfinished`, or another batch of its messages, publishes the outputs left in outboxes."
    if record.rounds == 0:
        return left
    rounds = counted(record.rounds, "committed round")
    folder = within(record.out, f"batch_id={record.batch_id}")
    there = f"The outcomes of {rounds} are in {folder}: publish them from there"
    return f"{there}, because no other batch repeats them. {left}"


def open_outcomes(out: str, batch_id: str | None, outcome_filter: OutcomeFilter) -> OutcomeFiles:
    """Open the outcomes in a folder. If `batch_id` is None, open the outcomes of all batches.

    Raises `NotPossibleError` if outcomes are missing or unreadable, or all batches have too many dead letters.
    """
    import pyarrow as pa

    if Path(out).is_file():
        raise NotPossibleError(f"{out} is a file: use the folder of the outcomes.")
    try:
        found = OutcomeFiles.find(out, batch_id, outcome_filter)
    except (OSError, pa.ArrowException) as error:
        reason = str(error).partition("\n")[0]
        raise NotPossibleError(f"Outcomes cannot be read from {out}: {reason}.") from error
    if not found.rounds and found.held_back:
        select = f"select one, such as --batch-id {found.held_back[0]}"
        raise NotPossibleError(f"All batches in {out} are held back: {select}.")
    if not found.rounds:
        which, write = f" of batch {batch_id}" if batch_id else "", f"`consistent run --out {quote(out)}`"
        raise NotPossibleError(f"There are no outcomes{which} in {out}: {write} writes them.")
    return found


def outcomes(
    *,
    out: str = option(
        "The folder or URL of outcomes, or of one batch in it.", default=REQUIRED, metavar="DIR", group=""
    ),
    batch_id: str | None = option("Only outcomes of this batch.", metavar="ID"),
    outcome_filter: OutcomeFilter,
    limit: Limit = 20,
    as_json: AsJson = False,
) -> None:
    r"""Show the outcomes of batches: the result of each delivery, and the outputs.

        consistent outcomes --out outcomes
        consistent outcomes --out outcomes --status dead_letter \
            --json --limit 0

    Reads the Parquet files without Spark; for a URL, with the credentials that pyarrow or fsspec finds. Shows counts by
    handler and status, each output once, and dead letters by reason and error. With a filter it also lists the
    deliveries. Batches that are held back (--strict) are omitted unless selected.
    """
    with needing("Reading outcomes needs"):
        import pyarrow.parquet  # noqa: F401 - fails early if missing
    files = open_outcomes(out, batch_id, outcome_filter)
    screen = Screen(as_json)
    for each in files.held_back:
        if files.is_one:
            screen.note(f"Batch {each} is held back: it has too many dead letters and is not published.")
        else:
            screen.note(f"Batch {each} is held back and omitted: --batch-id {each} shows it.")
    _show(files, limit or None, screen)


def _show(files: OutcomeFiles, limit: int | None, screen: Screen) -> None:
    counts = files.counts()
    dead_count = sum(count for (_, status, _), count in counts.items() if status == Status.DEAD_LETTER)
    only_dead = replace(files.outcome_filter, status=Status.DEAD_LETTER)
    dead = replace(files, outcome_filter=only_dead) if dead_count else None
    dead_letters = group_dead_letters(dead.rows())[:limit] if dead else []
    deliveries, published = list(islice(files.rows(), limit)), list(islice(files.published(), limit))
    in_order = sorted(counts.items(), key=lambda each: tuple(part or "" for part in each[0]))
    screen.put(
        {
            "counts": [dict(zip((*KINDS, "count"), (*kind, count), strict=True)) for kind, count in in_order],
            "outcomes": deliveries,
            "published": published,
            "dead_letters": [asdict(group) for group in dead_letters],
            "held_back": list(files.held_back),
        }
    )
    if not counts:
        screen.show("There are no such outcomes.")
        return
    screen.show(*_deliveries(files, counts, deliveries))
    if published:
        more = ", the first" if limit and len(published) == limit else ""
        is_held_back = files.is_one and files.held_back
        title = "Not published, because the batch is held back" if is_held_back else "Published"
        columns = {name: name for name in ("batch_id", "message_id", "type", "body", "published_by")}
        screen.show("", make_table(f"{title}{more}", columns | {"cause": "for_message"}, published))
    if dead_letters:
        screen.show("", table_of_dead_letters(dead_letters, dead_count))


def _deliveries(files: OutcomeFiles, counts: Counter[OutcomeKind], deliveries: Sequence[Row]) -> Parts:
    """Yield the counts by handler and status and, if a filter is set, the deliveries."""
    by_handler: dict[str, dict[str, Any]] = {}
    for (handler, status, _), count in sorted(counts.items(), key=lambda each: each[0][0] or ""):
        new: dict[str, Any] = {"handler": handler or "(none)", **dict.fromkeys(Status, 0)}
        by_handler.setdefault(handler or "", new)[status] += count
    yield make_table("Outcomes", ("handler", *Status), by_handler.values())
    if files.outcome_filter != OutcomeFilter():
        total = counts.total()
        more = "" if len(deliveries) == total else f", the first {len(deliveries):,} of {total:,}"
        yield ""
        columns = ("batch_id", "round", "message_id", "type", "handler", "business_id", "status")
        rows = []
        for each in deliveries:
            status = f"{each['status']}: {each['reason']}" if each["reason"] else each["status"]
            rows.append(each | {"status": status, "outputs": len(each["outputs"] or ())})
        yield make_table(f"Deliveries{more}", (*columns, "version", "outputs", "error"), rows)
