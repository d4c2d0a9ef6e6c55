"""`consistent truncate` and `consistent policy`: delete old versions, and the rules kept in the table for it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from rich.console import RenderableType

from eventstore import Table
from runtime.algorithms.state_based.truncation import HeldBy, PolicyRules, TruncationChoices
from runtime.batch_options import TablePlace
from runtime.cli.checks import on_table, require_table
from runtime.cli.console import Screen, counted, make_table, moment
from runtime.cli.failures import NotPossibleError
from runtime.cli.options import AsJson, SparkOptions, duration_text
from runtime.clock import system_clock
from runtime.errors import UsageError
from runtime.leases import Leases
from runtime.ledger.batch import OpenBatches
from runtime.maintenance.policies import NO_RULES, Policies, Policy, Scope, existing
from runtime.messages.envelope import canonical
from runtime.options import option

if TYPE_CHECKING:
    from runtime.spark.truncation import TruncatedCount

# `consistent policy`: what may be cut of the streams of a table, kept in the table.

T = TypeVar("T")


@dataclass(frozen=True)
class ScopeOptions:
    """Which streams a policy is for."""

    handler: str | None = option(
        "For the streams of this handler; without it, for all.", default=None, metavar="NAME"
    )
    stream: str | None = option(
        "For the stream of --handler with this business id.", default=None, metavar="ID"
    )

    def scope(self) -> Scope:
        """Return the scope. Raises `UsageError` for the stream of no handler."""
        if self.stream is not None and self.handler is None:
            raise UsageError("A stream is that of a handler: give --handler too.")
        return Scope(self.handler, self.stream)


def set_policy(
    *,
    states: TablePlace,
    given: ScopeOptions,
    rules: PolicyRules,
    hold: bool = option(
        "Hold: nothing of it is cut, whatever rules say, until the hold is lifted.", default=False
    ),
    as_json: AsJson = False,
) -> None:
    r"""Say what may be cut of the streams of a table, of a handler, or of one stream; or hold them.

        consistent policy set --store sqlite:///store.db --table games \
            --handler ShootingRange --older-than 90d --keep-last 1

    `consistent truncate` without rules applies them: to a stream the rules for it count, else those for its handler,
    else those for the table. They replace what was set for the same before. A hold counts whatever else is set: nothing
    of what is held is cut, by rules given to `consistent truncate` neither. A handler or business object that the table
    has nothing of is refused. Three or four requests.
    """
    asked = given.scope()
    if rules == PolicyRules() and not hold:
        raise UsageError("Say what may be cut, by --older-than AGE, --keep-last N or both, or --hold.")
    if rules != PolicyRules():
        rules.as_of(0, OpenBatches())
    scope = on_table(states, lambda table: existing(table, asked))
    if rules != PolicyRules():
        policy = _on_policies(states, lambda policies: policies.set_rules(scope, rules))
    if hold:
        policy = _on_policies(states, lambda policies: policies.hold(scope))
    Screen(as_json).put(_document(policy), _table([policy]))


def list_policies(*, states: TablePlace, as_json: AsJson = False) -> None:
    """List the policies of a table: for all its streams, for handlers, and for single streams.

        consistent policy list --store sqlite:///store.db --table games

    One request for each 1,000.
    """
    policies = _on_policies(states, lambda policies: policies.all())
    Screen(as_json).put(
        {"policies": [_document(policy) for policy in policies]},
        _table(policies) if policies else "The table has no policies.",
    )


def remove_policy(
    *,
    states: TablePlace,
    given: ScopeOptions,
    hold: bool = option("Lift the hold, and leave the rules.", default=False),
    as_json: AsJson = False,
) -> None:
    r"""Remove the rules of a policy, or with --hold lift its hold.

        consistent policy remove --store sqlite:///store.db --table games \
            --handler ShootingRange

    Rules and hold of the same scope are removed apart, so that removing rules never lifts a hold. Three requests.
    """
    scope = given.scope()
    name = "the table" if scope.handler is None else str(scope)
    policy = _on_policies(states, lambda policies: policies.get(scope))
    if not policy.etag and scope.business_id is not None:  # kept by the id as it is stored
        scope = replace(scope, business_id=canonical(scope.business_id))
        policy = _on_policies(states, lambda policies: policies.get(scope))
    if (not policy.hold) if hold else (policy.rules is None):
        what = "is no hold" if hold else "are no rules"
        raise UsageError(f"There {what} for {name}: `consistent policy list` lists what there is.")
    if hold:
        policy = _on_policies(states, lambda policies: policies.lift_hold(scope))
    else:
        policy = _on_policies(states, lambda policies: policies.remove_rules(scope))
    said = [f"The {'hold is lifted' if hold else 'rules are removed'} for {name}."]
    Screen(as_json).put(_document(policy), *said, *(["It is still held."] if policy.hold else []))


def _on_policies(states: TablePlace, work: Callable[[Policies], Awaitable[T]]) -> T:
    return on_table(states, lambda table: work(Policies(table, system_clock)))


def _document(policy: Policy) -> dict[str, Any]:
    rules = policy.rules

    def seconds(microseconds: int | None) -> int | None:
        return None if microseconds is None else microseconds // 1_000_000

    return {
        "handler": policy.scope.handler,
        "stream": policy.scope.business_id,
        "older_than_seconds": seconds(rules.older_than) if rules else None,
        "keep_last": rules.keep_last if rules else None,
        "redelivery_window_seconds": seconds(rules.redelivery_window) if rules else None,
        "allow_undated": rules.allow_undated if rules else None,
        "acknowledged_after_seconds": seconds(rules.acknowledged_after) if rules else None,
        "hold": policy.hold,
        "set_at": moment(policy.set_at),
    }


def _table(policies: Sequence[Policy]) -> RenderableType:
    rows = []
    for policy in policies:
        rules = policy.rules or PolicyRules()
        acknowledged = rules.acknowledged_after
        rows.append(
            {
                "for": str(policy.scope),
                "older than": None if rules.older_than is None else duration_text(rules.older_than),
                "keep last": rules.keep_last,
                "redelivery window": duration_text(rules.redelivery_window)
                if rules.redelivery_window
                else None,
                "undated": ("cut" if rules.allow_undated else "kept") if policy.rules else None,
                "acknowledged": None if acknowledged is None else duration_text(acknowledged),
                "hold": "held" if policy.hold else None,
                "set at": moment(policy.set_at),
            }
        )
    return make_table("Policies", tuple(rows[0]), rows)


# `consistent truncate`: what it cut, or would cut, and why the rest stays.

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

    def parts(self) -> Iterator[RenderableType]:
        """Yield the report for people."""
        totals = self._totals()
        if not totals["streams"]:
            yield "The table has no streams: there is nothing to cut."
            return
        verb = "to cut" if self.dry_run else "cut"
        columns = {"handler": "handler", "streams": "streams", "cut": f"streams {verb}"}
        columns |= {name: f"{name} {verb}" for name in ("versions", "runs", "rows", "bytes")}
        columns["letters"] = "letters given up"
        yield make_table("What would be cut" if self.dry_run else "What was cut", columns, self._handlers())
        was = "would be" if self.dry_run else "was" if totals["versions"] == 1 else "were"
        yield (
            f"{counted(totals['versions'], 'version')} in {counted(totals['runs'], 'run')} {was} cut, of "
            f"{totals['cut']:,} out of {counted(totals['streams'], 'stream')}."
        )
        by_policy = self._streams_by("rules")
        by_policy.pop("given", None)
        if by_policy:
            shares = [f"{counted(number, 'stream')} by that of the {by}" for by, number in by_policy.items()]
            yield f"By the policies of the table: {', '.join(shares)}."
        without = self._without_rules()
        if without:
            have, were = ("has", "was") if without == 1 else ("have", "were")
            yield f"{counted(without, 'stream')} {have} no policy, and {were} left alone."
        held = self._streams_by("held")
        if held:
            shares = [f"{counted(number, 'stream')} {_HELD[HeldBy(by)]}" for by, number in held.items()]
            yield f"Held back: {', '.join(shares)}."
        rows = totals["rows"]
        each = f", {self.requests / rows:.2f} for each row" if rows else ""
        deleted = "would be deleted" if self.dry_run else "deleted"
        yield f"{counted(rows, 'row')} {deleted}. {counted(self.requests, 'request')}{each}."
        if totals["cut"]:
            yield "An unknown message that is not newer than the horizon of such a stream is too late from then on."
        else:
            yield (
                "Kept are the newest run of each stream, what is too young or among the last by the rules given, and "
                "versions of batches that are not published."
            )

    def _handlers(self) -> list[dict[str, Any]]:
        sums: Mapping[str, dict[str, int]] = defaultdict(lambda: dict.fromkeys(_SUMS, 0))
        for count in self.counts:
            for name in _SUMS:
                sums[count.handler][name] += getattr(count, name)
        return [{"handler": handler, **sums[handler]} for handler in sorted(sums)]

    def _streams_by(self, name: str) -> dict[str, int]:
        """Return the number of streams for each value of a column that is not None."""
        streams: Counter[str] = Counter()
        for count in self.counts:
            if getattr(count, name) is not None:
                streams[getattr(count, name)] += count.streams
        return dict(sorted(streams.items()))

    def _without_rules(self) -> int:
        return sum(count.streams for count in self.counts if count.rules is None and count.held is None)

    def _totals(self) -> dict[str, int]:
        return {name: sum(getattr(each, name) for each in self.counts) for name in _SUMS}


def truncate(
    *,
    states: TablePlace,
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
    require_table(states)
    if choices.is_given:
        choices.as_of(system_clock(), OpenBatches())
    elif not _on_policies(states, lambda policies: policies.has_rules()):
        raise UsageError(NO_RULES)
    if choices.report is not None and choices.report.exists():
        raise UsageError(f"{choices.report} is there already: name a new folder for the report.")

    async def check_lease(table: Table) -> None:
        leases = Leases(table, system_clock)
        if not choices.take_over:
            await leases.check_free()
            return
        held = await leases.find()
        if held is not None:
            screen.note(f"Taking over from {held}. It stops before its next streams.")

    if not choices.dry_run:
        on_table(states, check_lease)
    spark.check_scope(states)
    from runtime.spark.truncation import truncate as cut

    with spark.working("Stopped. All streams can be read: run it again to finish.") as (session, progress):
        by = "" if choices.is_given else " by the policies of the table"
        progress.step(f"{'Looking through the streams' if choices.dry_run else 'Cutting'}{by}")
        done = cut(session, store=states.store, table=states.table, **asdict(choices))
        progress.done()
        found = TruncationReport(done.counts, done.requests, choices.dry_run)
        screen.put(found.document(), *found.parts())
    if found.damaged:
        raise NotPossibleError(
            f"{counted(found.damaged, 'stream')} could not be read, and nothing was cut there."
        )
