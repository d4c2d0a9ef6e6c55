"""`consistent truncate` and `consistent policy`: delete old versions, and the rules kept in the table for it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import RenderableType

from eventstore import Table, connect
from runtime.algorithms.state_based.truncation import HeldBy, PolicyRules, TruncationChoices
from runtime.cli.checks import Place, on_table, require_table
from runtime.cli.console import Cell, Screen, counted, make_table, moment_cell, moment_text
from runtime.cli.failures import NotPossibleError
from runtime.cli.options import AsJson, SparkOptions, StoreUrl, TableName, duration_text
from runtime.clock import system_clock
from runtime.errors import UsageError
from runtime.leases import Leases
from runtime.ledger.batch import OpenBatches
from runtime.maintenance.policies import NO_RULES, Policies, Policy, Scope

if TYPE_CHECKING:
    from runtime.spark.truncation import TruncatedCount


# `consistent policy`: what may be cut of the streams of a table, kept in the table.

Handler = Annotated[
    str | None,
    typer.Option("--handler", metavar="NAME", help="For the streams of this handler; without it, for all."),
]
BusinessId = Annotated[
    str | None,
    typer.Option("--stream", metavar="ID", help="For the stream of --handler with this business id."),
]
Hold = Annotated[
    bool,
    typer.Option("--hold", help="Hold: nothing of it is cut, whatever rules say, until the hold is lifted."),
]
LiftHold = Annotated[bool, typer.Option("--hold", help="Lift the hold, and leave the rules.")]

_COLUMNS = (
    "for",
    "older than",
    "keep last",
    "redelivery window",
    "undated",
    "acknowledged",
    "hold",
    "set at",
)


def set_policy(
    *,
    store: StoreUrl,
    table: TableName,
    handler: Handler = None,
    stream: BusinessId = None,
    rules: PolicyRules,
    hold: Hold = False,
    as_json: AsJson = False,
) -> None:
    r"""Say what may be cut of the streams of a table, of a handler, or of one stream; or hold them.

        consistent policy set --store sqlite:///store.db --table games \
            --handler ShootingRange --older-than 90d --keep-last 1

    `consistent truncate` without rules applies them: to a stream the rules for it count, else those for its handler,
    else those for the table. They replace what was set for the same before. A hold counts whatever else is set: nothing
    of what is held is cut, by rules given to `consistent truncate` neither. Two requests.
    """
    scope = _scope(handler, stream)
    is_given = rules != PolicyRules()
    if not is_given and not hold:
        raise UsageError("Say what may be cut, by --older-than AGE, --keep-last N or both, or --hold.")
    if is_given:
        rules.as_of(0, OpenBatches())
        policy = on_table(store, table, lambda found: Policies(found, system_clock).set_rules(scope, rules))
    if hold:
        policy = on_table(store, table, lambda found: Policies(found, system_clock).hold(scope))
    screen = Screen(as_json)
    screen.give(_document(policy))
    screen.show(_table([policy]))


def list_policies(*, store: StoreUrl, table: TableName, as_json: AsJson = False) -> None:
    """List the policies of a table: for all its streams, for handlers, and for single streams.

        consistent policy list --store sqlite:///store.db --table games

    One request for each 1,000.
    """
    policies = on_table(store, table, lambda found: Policies(found, system_clock).all())
    screen = Screen(as_json)
    screen.give({"policies": [_document(policy) for policy in policies]})
    screen.show(_table(policies) if policies else "The table has no policies.")


def remove_policy(
    *,
    store: StoreUrl,
    table: TableName,
    handler: Handler = None,
    stream: BusinessId = None,
    hold: LiftHold = False,
    as_json: AsJson = False,
) -> None:
    r"""Remove the rules of a policy, or with --hold lift its hold.

        consistent policy remove --store sqlite:///store.db --table games \
            --handler ShootingRange

    Rules and hold of the same scope are removed apart, so that removing rules never lifts a hold. Three requests.
    """
    scope = _scope(handler, stream)
    policy = on_table(store, table, lambda found: Policies(found, system_clock).get(scope))
    if (not policy.hold) if hold else (policy.rules is None):
        raise UsageError(
            f"There {'is no hold' if hold else 'are no rules'} for {_name(scope)}: `consistent policy list` lists what "
            f"there is."
        )
    if hold:
        policy = on_table(store, table, lambda found: Policies(found, system_clock).lift_hold(scope))
    else:
        policy = on_table(store, table, lambda found: Policies(found, system_clock).remove_rules(scope))
    screen = Screen(as_json)
    screen.give(_document(policy))
    screen.show(f"The {'hold is lifted' if hold else 'rules are removed'} for {_name(scope)}.")
    if policy.hold:
        screen.show("It is still held.")


def _scope(handler: str | None, business_id: str | None) -> Scope:
    if business_id is not None and handler is None:
        raise UsageError("A stream is that of a handler: give --handler too.")
    return Scope(handler, business_id)


def _name(scope: Scope) -> str:
    return "the table" if scope.handler is None else str(scope)


def _document(policy: Policy) -> dict[str, Any]:
    rules = policy.rules
    return {
        "handler": policy.scope.handler,
        "stream": policy.scope.business_id,
        "older_than_seconds": _seconds(rules.older_than) if rules else None,
        "keep_last": rules.keep_last if rules else None,
        "redelivery_window_seconds": _seconds(rules.redelivery_window) if rules else None,
        "allow_undated": rules.allow_undated if rules else None,
        "acknowledged_after_seconds": _seconds(rules.acknowledged_after) if rules else None,
        "hold": policy.hold,
        "set_at": moment_text(policy.set_at),
    }


def _seconds(microseconds: int | None) -> int | None:
    return None if microseconds is None else microseconds // 1_000_000


def _table(policies: list[Policy]) -> Any:  # noqa: ANN401 - whatever rich can show
    return make_table("Policies", _COLUMNS, map(_row, policies))


def _row(policy: Policy) -> tuple[Cell, ...]:
    rules = policy.rules
    cells: tuple[Cell, ...] = (None, None, None, None, None)
    if rules is not None:
        age = None if rules.older_than is None else duration_text(rules.older_than)
        window = duration_text(rules.redelivery_window) if rules.redelivery_window else None
        promised = rules.acknowledged_after
        acknowledged = None if promised is None else duration_text(promised)
        cells = (age, rules.keep_last, window, "cut" if rules.allow_undated else "kept", acknowledged)
    return (str(policy.scope), *cells, "held" if policy.hold else None, moment_cell(policy.set_at))


# What a truncation cut, or would cut, for people and for machines.

_TRUNCATION_COLUMNS = (
    "handler",
    "streams",
    "streams {}",
    "versions {}",
    "runs {}",
    "rows {}",
    "bytes {}",
    "letters given up",
)
_SUMS = ("streams", "cut", "versions", "runs", "rows", "bytes", "letters")
_HELD = {
    HeldBy.HOLD: "by a hold",
    HeldBy.OPEN_BATCH: "by batches that are not published",
    HeldBy.UNDATED: "by versions without enqueued_at",
    HeldBy.LETTER: ("by letters that wait: redrive or discard them, or add --give-up-letters-older-than AGE"),
    HeldBy.STREAM_DAMAGED: "as they are damaged (`consistent check` says where)",
    HeldBy.UNACKNOWLEDGED: (
        "by single messages whose outputs may be unpublished: let consumers acknowledge (acknowledge_every), or "
        "promise with --acknowledged-after AGE that those handled longer ago were acknowledged"
    ),
}


@dataclass(frozen=True, slots=True)
class TruncationReport:
    """What was cut of the streams of each handler, what was held back, and what that cost."""

    counts: Sequence[TruncatedCount]
    requests: int
    dry_run: bool

    def document(self) -> dict[str, Any]:
        """Return the report for JSON."""
        totals = self._totals()
        rows = totals["rows"]
        return {
            "dry_run": self.dry_run,
            **totals,
            "requests": self.requests,
            "requests_per_row": round(self.requests / rows, 3) if rows else None,
            "held": self._streams_by("held"),
            "rules": self._streams_by("rules"),
            "without_rules": self._without_rules(),
            "handlers": self._handlers(),
        }

    @property
    def damaged(self) -> int:
        """How many streams could not be read."""
        return self._streams_by("held").get(HeldBy.STREAM_DAMAGED, 0)

    def table(self) -> RenderableType:
        """Return a row for each handler."""
        verb = "to cut" if self.dry_run else "cut"
        rows = [tuple(each.values()) for each in self._handlers()]
        return make_table("What would be cut" if self.dry_run else "What was cut", _headings(verb), rows)

    def parts(self) -> Iterator[RenderableType]:
        """Give the report for people."""
        totals = self._totals()
        if not totals["streams"]:
            yield "The table has no streams: there is nothing to cut."
            return
        yield self.table()
        was = "would be" if self.dry_run else "was" if totals["versions"] == 1 else "were"
        yield (
            f"{counted(totals['versions'], 'version')} in {counted(totals['runs'], 'run')} {was} cut, of "
            f"{totals['cut']:,} out of {counted(totals['streams'], 'stream')}."
        )
        yield from self._rules()
        yield from self._held()
        yield self._cost(totals["rows"])
        if totals["cut"]:
            yield "An unknown message that is not newer than the horizon of such a stream is too late from then on."
        else:
            yield (
                "Kept are the newest run of each stream, what is too young or among the last by the rules given, and "
                "versions of batches that are not published."
            )

    def _rules(self) -> Iterator[str]:
        by_policy = self._streams_by("rules")
        by_policy.pop("given", None)
        if by_policy:
            shares = [
                f"{counted(number, 'stream')} by that of the {level}" for level, number in by_policy.items()
            ]
            yield f"By the policies of the table: {', '.join(shares)}."
        without = self._without_rules()
        if without:
            yield f"{counted(without, 'stream')} {_have(without)} no policy, and {_were(without)} left alone."

    def _held(self) -> Iterator[str]:
        held = self._streams_by("held")
        if held:
            shares = [f"{counted(number, 'stream')} {_HELD[HeldBy(by)]}" for by, number in held.items()]
            yield f"Held back: {', '.join(shares)}."

    def _cost(self, rows: int) -> str:
        each = f", {self.requests / rows:.2f} for each row" if rows else ""
        would = "would be deleted" if self.dry_run else "deleted"
        return f"{counted(rows, 'row')} {would}. {counted(self.requests, 'request')}{each}."

    def _handlers(self) -> list[dict[str, Any]]:
        sums: Mapping[str, dict[str, int]] = defaultdict(lambda: dict.fromkeys(_SUMS, 0))
        for count in self.counts:
            for name in _SUMS:
                sums[count.handler][name] += getattr(count, name)
        return [{"handler": handler, **sums[handler]} for handler in sorted(sums)]

    def _streams_by(self, name: str) -> dict[str, int]:
        """Return the number of streams for each value of a column that is not None."""
        streams: dict[str, int] = defaultdict(int)
        for count in self.counts:
            value = getattr(count, name)
            if value is not None:
                streams[value] += count.streams
        return dict(sorted(streams.items()))

    def _without_rules(self) -> int:
        return sum(count.streams for count in self.counts if count.rules is None and count.held is None)

    def _totals(self) -> dict[str, int]:
        return {name: sum(getattr(each, name) for each in self.counts) for name in _SUMS}


def _headings(verb: str) -> list[str]:
    return [heading.format(verb) for heading in _TRUNCATION_COLUMNS]


def _have(number: int) -> str:
    return "has" if number == 1 else "have"


def _were(number: int) -> str:
    return "was" if number == 1 else "were"


def truncate(
    *,
    store: StoreUrl,
    table: TableName,
    choices: TruncationChoices,
    spark: SparkOptions,
    as_json: AsJson = False,
) -> None:
    r"""Cut old versions of all streams of a table, by age, by number or both, or by the policies of the table.

        consistent truncate --store sqlite:///store.db --table games \
            --older-than 30d --keep-last 100 --dry-run

    A version goes only when every rule given lets it. The newest run of a stream stays, and so do versions of batches
    that are not published, and those younger than 24h. The newest state is never lost, but a message whose version
    was cut can no longer be told from a new one: it is too_late when it is redelivered.

    Versions of single messages with outputs stay until their consumer says that these are published (see
    docs/operations.md), or you promise it with --acknowledged-after: longer ago than the queue keeps a message.

    A letter that waits holds its stream: versions are kept that are not older, so that a redrive is never too late.
    --give-up-letters-older-than is the way out.

    Without rules the policies count that `consistent policy set` has kept in the table; rules given here count in
    place of them, but for holds: what is held is never cut.

    With --export versions are written to files first, and cut only once these were read back; `consistent show
    --export` and `consistent verify --export` read them. So are letters that are given up, as lines of JSON.

    One query for each stream, three more for one that is cut, and one transaction for each 99 rows. One at a time
    truncates a table. Stopped at any moment it leaves streams that can be read; run it again to finish.
    """
    screen = Screen(as_json)
    _check(Place(store, table), choices, spark, screen)
    from runtime.spark.truncation import truncate as cut

    with spark.working("Stopped. All streams can be read: run it again to finish.") as (session, progress):
        by = "" if choices.is_given else " by the policies of the table"
        progress.step(f"{'Looking through the streams' if choices.dry_run else 'Cutting'}{by}")
        done = cut(session, store=store, table=table, **asdict(choices))
        progress.done()
        found = TruncationReport(done.counts, done.requests, choices.dry_run)
        screen.put(found)
    if found.damaged:
        raise NotPossibleError(
            f"{counted(found.damaged, 'stream')} could not be read, and nothing was cut there."
        )


def _check(states: Place, choices: TruncationChoices, spark: SparkOptions, screen: Screen) -> None:
    """Refuse what cannot be done before Spark is started."""
    require_table(*states)
    if choices.is_given:
        choices.as_of(system_clock(), OpenBatches())
    elif not on_table(*states, lambda found: Policies(found, system_clock).has_rules()):
        raise UsageError(NO_RULES)
    if choices.report is not None and choices.report.exists():
        raise UsageError(f"{choices.report} is there already: name a new folder for the report.")
    if not choices.dry_run:
        on_table(*states, lambda found: _check_lease(found, screen, take_over=choices.take_over))
    from runtime.spark.worker.connection import check_scope

    check_scope(connect(states.store).scope, spark.place)


async def _check_lease(table: Table, screen: Screen, *, take_over: bool) -> None:
    leases = Leases(table, system_clock)
    if not take_over:
        await leases.check_free()
        return
    held = await leases.find()
    if held is not None:
        screen.note(f"Taking over from {held}. It stops before its next streams.")
