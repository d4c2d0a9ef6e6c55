"""`consistent truncate`: clean a table up, and manage the policies for it."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from rich.console import RenderableType
from rich.text import Text

from eventstore import Table, connect
from runtime.algorithms.choice import AlgorithmName, described_algorithm, published_by_nobody
from runtime.algorithms.state_based.truncation import HeldBy, RetentionRules, TruncationChoices
from runtime.batch_options import BatchOptions, TablePlace
from runtime.cli.checks import confirm, load_app, on_table, require_table
from runtime.cli.console import Parts, Screen, counted, make_table
from runtime.cli.failures import NotPossibleError
from runtime.cli.options import (
    DEFAULT_MASTER,
    AsJson,
    AuxiliaryStore,
    ScanOptions,
    SparkOptions,
    Yes,
    duration_text,
    only,
)
from runtime.clock import moment, system_clock
from runtime.documents import DocumentSweep, Swept, existing_documents
from runtime.errors import UsageError
from runtime.leases import CleanUpLease
from runtime.ledger.batch import OpenBatches
from runtime.ledger.ledger import STATE_BASED, Ledger
from runtime.maintenance.policies import NO_RULES, Policies, Policy, Scope, existing
from runtime.messages.envelope import canonical
from runtime.options import flag, option
from runtime.processor import Processor
from runtime.retries import RetryPolicy, until_undisturbed

if TYPE_CHECKING:
    from runtime.spark.truncation import TruncatedCount


@dataclass(frozen=True)
class PolicyOptions:
    """Options that manage policies, the retention rules stored in the table, instead of cleaning up."""

    policy: Literal["set", "list", "remove"] | None = option(
        "Instead of cleaning up: store the given rules in the table, list its rules, or remove them."
    )
    handler: str | None = option("With --policy: only for this handler.", metavar="NAME", is_rare=True)
    stream: str | None = option("With --policy: for one stream of --handler.", metavar="ID", is_rare=True)
    hold: bool = flag("With --policy set: prevent any truncation until --policy remove --hold.", is_rare=True)

    def carry_out(self, states: TablePlace, choices: TruncationChoices, screen: Screen, *, yes: bool) -> bool:
        """Set, list or remove policies if --policy was given. Return whether --policy was given.

        Raises `UsageError` for contradictory options, and if there is no policy to remove.
        """
        scope = Scope(self.handler, self.stream)
        if self.policy is None:
            if self.hold or scope != Scope():
                raise UsageError("--handler, --stream and --hold need --policy set or remove.")
            return False
        rules = RetentionRules(**{name: getattr(choices, name) for name in _RULES})
        if self.policy != "set" and rules != RetentionRules():
            raise UsageError(f"--policy {self.policy} takes no rules: omit them.")
        if self.policy == "list" and (self.hold or scope != Scope()):
            raise UsageError("--policy list lists all policies: omit --handler, --stream and --hold.")
        others = (each for each in fields(choices) if each.name not in _RULES)
        given = next((each.name for each in others if getattr(choices, each.name) != each.default), None)
        if given is not None:
            raise UsageError(f"A policy consists of rules only: omit --{given.replace('_', '-')}.")
        if self.stream is not None and self.handler is None:
            raise UsageError("--stream needs --handler.")
        if self.policy == "set" and rules == RetentionRules() and not self.hold:
            raise UsageError("Add rules, --older-than AGE or --keep-last N, or --hold.")
        if self.policy == "set":
            policy = on_table(states, partial(self._set, scope, rules))
            screen.put(_document(policy), _table([policy]))
        elif self.policy == "list":
            policies = on_table(states, lambda table: Policies(table, system_clock).all())
            screen.put({"policies": [*map(_document, policies)]}, _table(policies))
        else:
            found = on_table(states, partial(self._find, scope)).scope
            confirm(f"Removing the {'hold' if self.hold else 'rules'} for {found}", yes=yes, hint="")
            # Removing rules never lifts a hold.
            change: dict[str, Any] = {"hold": False} if self.hold else {"rules": None}
            policy = on_table(states, lambda table: Policies(table, system_clock).change(found, **change))
            said = f"The {'hold is lifted' if self.hold else 'rules are removed'} for {found}."
            screen.put(_document(policy), said, *(["It is still held."] if policy.hold else []))
        return True

    async def _set(self, asked: Scope, rules: RetentionRules, table: Table) -> Policy:
        scope, policies = await existing(table, asked), Policies(table, system_clock)
        if rules != RetentionRules():
            policy = await policies.set_rules(scope, rules)
        if self.hold:
            policy = await policies.change(scope, hold=True)
        return policy

    async def _find(self, scope: Scope, table: Table) -> Policy:
        """Return the policy with the hold or rules to remove. Raises `UsageError` if there is none."""
        policies = Policies(table, system_clock)
        policy = await policies.get(scope)
        if not policy.etag and scope.business_id is not None:  # stored under the canonical id
            policy = await policies.get(replace(scope, business_id=canonical(scope.business_id)))
        if (not policy.hold) if self.hold else (policy.rules is None):
            missing = "is no hold" if self.hold else "are no rules"
            raise UsageError(f"There {missing} for {scope}: `--policy list` lists all policies.")
        return policy


_RULES = [each.name for each in fields(RetentionRules)]
_AGES = ("older_than", "redelivery_window", "acknowledged_after")


def _document(policy: Policy) -> dict[str, Any]:
    rules: dict[str, Any] = asdict(policy.rules) if policy.rules else dict.fromkeys(_RULES)
    for name in _AGES:
        age = rules.pop(name)
        rules[f"{name}_seconds"] = age and age // 1_000_000
    scope = {"handler": policy.scope.handler, "stream": policy.scope.business_id}
    return {**scope, **rules, "hold": policy.hold, "set_at": moment(policy.set_at)}


def _table(policies: Sequence[Policy]) -> RenderableType:
    if not policies:
        return Text("The table has no policies.")
    rows = []
    for policy in policies:
        rules: dict[str, Any] = asdict(policy.rules) if policy.rules else dict.fromkeys(_RULES)
        rules |= {name: duration_text(rules[name]) for name in _AGES if rules[name]}
        held = "held" if policy.hold else None
        rows.append({"for": str(policy.scope), **rules, "hold": held, "set_at": moment(policy.set_at)})
    return make_table("Policies", tuple(rows[0]), rows)


_HELD = {
    HeldBy.HOLD: "by a hold",
    HeldBy.OPEN_BATCH: "by unpublished batches",
    HeldBy.UNDATED: "by versions without enqueued_at",
    HeldBy.LETTER: "by dead letters: redrive or discard them, or add --give-up-letters-older-than AGE",
    HeldBy.STREAM_DAMAGED: "because they are corrupt (`consistent check` lists the rows)",
    HeldBy.UNACKNOWLEDGED: (
        "by single messages with possibly unpublished outputs: use acknowledge_every in consumers, or assert with "
        "--acknowledged-after AGE that older messages were acknowledged"
    ),
}


_SUMS = ("streams", "cut", "versions", "runs", "rows", "bytes", "letters")


def describe_truncation(counts: Sequence[TruncatedCount], requests: int, *, dry_run: bool) -> dict[str, Any]:
    """Return the JSON form of a truncation: totals, totals by handler, and numbers of streams.

    `rules` has the number of streams by the origin of their rules, `held` by the reason why versions were kept.
    `requests` is the number of requests of all workers.
    """
    handlers: dict[str, Counter[str]] = defaultdict(Counter)
    streams: dict[str, Counter[str]] = {"held": Counter(), "rules": Counter()}
    without_rules = 0
    for each in counts:
        for name in _SUMS:
            handlers[each.handler][name] += getattr(each, name)
        for name, by in streams.items():
            if getattr(each, name) is not None:
                by[getattr(each, name)] += each.streams
        without_rules += each.streams if each.rules is None and each.held is None else 0
    totals = {name: sum(of_handler[name] for of_handler in handlers.values()) for name in _SUMS}
    return {
        "dry_run": dry_run,
        **totals,
        "requests": requests,
        "requests_per_row": round(requests / totals["rows"], 3) if totals["rows"] else None,
        **{name: dict(sorted(by.items())) for name, by in streams.items()},
        "without_rules": without_rules,
        "handlers": [{"handler": name, **sums} for name, sums in sorted(handlers.items())],
    }


def parts_of_truncation(described: Mapping[str, Any]) -> Parts:
    """Yield the human-readable parts of the report of a truncation. `described` is the JSON form of the report."""
    if not described["streams"]:
        yield "The table has no streams to truncate."
        return
    dry_run, rows, without = described["dry_run"], described["rows"], described["without_rules"]
    verb = "to cut" if dry_run else "cut"
    columns = {"handler": "handler", "streams": "streams", "cut": f"streams {verb}"}
    columns |= {name: f"{name} {verb}" for name in ("versions", "runs", "rows", "bytes")}
    columns["letters"] = "letters discarded"
    yield make_table("What would be cut" if dry_run else "What was cut", columns, described["handlers"])
    was = "would be" if dry_run else "was" if described["versions"] == 1 else "were"
    yield (
        f"{counted(described['versions'], 'version')} in {counted(described['runs'], 'run')} {was} cut, of "
        f"{described['cut']:,} out of {counted(described['streams'], 'stream')}."
    )
    policies = {level: number for level, number in described["rules"].items() if level != "given"}
    if policies:
        shares = [f"{counted(number, 'stream')} by that of the {level}" for level, number in policies.items()]
        yield f"By the policies of the table: {', '.join(shares)}."
    if without:
        have, were = ("has", "was") if without == 1 else ("have", "were")
        yield f"{counted(without, 'stream')} {have} no policy, and {were} skipped."
    if described["held"]:
        held = [f"{counted(many, 'stream')} {_HELD[HeldBy(by)]}" for by, many in described["held"].items()]
        yield f"Held back: {', '.join(held)}."
    each = f", {described['requests'] / rows:.2f} for each row" if rows else ""
    deleted = "would be deleted" if dry_run else "deleted"
    yield f"{counted(rows, 'row')} {deleted}. {counted(described['requests'], 'request')}{each}."
    if described["cut"]:
        yield "From now on, an unknown message not newer than the horizon of such a stream is too late."
    else:
        yield "Kept: the newest run of each stream, versions protected by rules, and those of unpublished batches."


def _sweep(
    states: TablePlace, url: str, dead_after: timedelta, screen: Screen, *, dry_run: bool, yes: bool
) -> dict[str, int]:
    """Delete orphaned documents at `url` after confirmation or, in a dry run, count them. Return the counts.

    `dead_after`: the age from which the worker of an uncommitted single message counts as dead.
    """
    documents = existing_documents(url)

    async def sweep(table: Table, *, only_look: bool) -> Swept:
        retries = RetryPolicy().beside(table)
        open_batches = await until_undisturbed(retries, Ledger(table, system_clock, retries).open_batches)
        sweep = DocumentSweep(table, documents, system_clock, retries, open_batches, only_look)
        return await sweep.sweep(dead_after)

    swept = on_table(states, partial(sweep, only_look=dry_run or not yes))
    if swept.attempts or swept.documents:
        if not (dry_run or yes):
            confirm(f"Deleting {counted(swept.documents, 'orphaned document')}", yes=False)
            swept = on_table(states, partial(sweep, only_look=False))
        documents_, attempts = counted(swept.documents, "document"), counted(swept.attempts, "attempt")
        of = f"{attempts} that never committed" if swept.attempts else "attempts abandoned before"
        would = f"Dry run: up to {documents_} of {of} would be deleted."
        screen.show(would if dry_run else f"Deleted {documents_} of {of}.")
    reasons = {
        f"begun less than {dead_after} ago (--dead-after)": swept.young,
        "of an unfinished batch: resume it with its id, or abandon it": swept.open,
        "abandoned less than a day ago: a later clean-up checks for late documents": swept.given_up,
    }
    screen.show(*(f"Skipped: {counted(many, 'attempt')} {why}." for why, many in reasons.items() if many))
    if not any(swept):
        screen.show("There are no orphaned documents.")
    return swept._asdict()


def _forget(
    states: TablePlace,
    app: str,
    algorithm: AlgorithmName,
    choices: TruncationChoices,
    *,
    others: AuxiliaryStore,
    scan: ScanOptions,
    yes: bool,
) -> tuple[dict[str, Any], str]:
    """Delete the ids of messages that the App `app` processed longer ago than `choices.older_than`.

    Returns the result in JSON form, and the sentence to print. Raises `UsageError` for missing or unsuitable options,
    and `BatchRefusedError` if the ledger records another algorithm or another table of ids.
    """
    age, dry_run, ids = choices.older_than, choices.dry_run, others.place(states)
    if not app or age is None:
        raise UsageError(f"Deleting ids of the algorithm {algorithm} needs --app and --older-than AGE.")
    if choices != TruncationChoices(older_than=age, allow_young=choices.allow_young, dry_run=dry_run):
        raise UsageError("Ids have only the rule --older-than: omit the other rules, which are for versions.")
    choices.as_of(0, OpenBatches())
    others.check(algorithm)
    older_than = timedelta(microseconds=age)
    loaded = load_app(app)
    require_table(ids)
    elsewhere = None if ids == states else ids
    described = described_algorithm(algorithm, None if elsewhere is None else (ids.store, ids.table))

    async def forget_here() -> int:
        async with connect(states.store) as store, connect(ids.store) as other:
            table = await store.table(states.table)
            seen = await other.table(ids.table) if elsewhere else None
            how: Any = {"algorithm": algorithm, "deduplication_store": seen}
            return await Processor(loaded, table, published_by_nobody, **how).evict(
                older_than, dry_run=dry_run
            )

    on_table(states, lambda table: Ledger(table, system_clock).check_table(described))
    if not dry_run:
        confirm(f"Deleting ids of processed messages from {states.table}", yes=yes)
    if scan.place:
        step = "Scanning entities" if dry_run else "Deleting ids"
        stopped = "Stopped. Run the same command again to finish."
        with scan.on_spark(step, stopped, states, ids) as spark:
            from runtime.spark.outbox import evict

            on_spark: Any = {"algorithm": algorithm, "ids": elsewhere, "dry_run": dry_run}
            forgotten = evict(spark, loaded, states, older_than, **on_spark)
    else:
        forgotten = asyncio.run(forget_here())
    are = "would be" if dry_run else "were"
    said = f"{counted(forgotten, 'id')} {are} deleted. A later copy of such a message is processed again."
    return {"older_than_seconds": older_than.total_seconds(), "forgotten": forgotten}, said


@dataclass(frozen=True)
class CleanUpOptions(ScanOptions):
    """Where clean-up runs: versions are always truncated on Spark; ids are deleted in this process or on Spark."""

    GROUP: ClassVar[str | None] = "spark"

    master: str | None = option(
        "The Spark master. By default, versions are truncated on local[*,4], and ids deleted in this process.",
        metavar="MASTER",
    )

    def __post_init__(self) -> None:
        self.for_versions()

    def for_versions(self) -> SparkOptions:
        """Return the options for truncating versions, with a default master. Raises `UsageError` for invalid ones."""
        return SparkOptions(self.master or DEFAULT_MASTER, self.remote, self.log_file, self.settings)


CleanUpKind = Literal["versions", "documents", "ids"]
_MISSING = {
    "versions": "Only the algorithm state-based has versions.",
    "documents": "--documents is missing.",
    "ids": "Only the algorithms outbox and deduplication-store have ids: use --algorithm.",
}


def truncate(
    *,
    states: TablePlace,
    choices: TruncationChoices,
    policy: PolicyOptions,
    only_: CleanUpKind | None = option("Clean up only these.", name="--only"),
    options: Annotated[BatchOptions, only("documents", "algorithm")],
    dead_after: timedelta = option(
        "With --documents: skip single messages that began more recently, because they may be in progress.",
        default=timedelta(hours=1),
        metavar="AGE",
        is_rare=True,
    ),
    app: str = option("With an outbox: the App with the handlers.", default="", metavar="MODULE:ATTRIBUTE"),
    others: AuxiliaryStore,
    spark: CleanUpOptions,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    r"""Truncate old versions, and delete orphaned documents or old message ids.

        consistent truncate --store sqlite:///store.db --table games \
            --older-than 30d --keep-last 100 --dry-run

    A version is deleted only if all given rules allow it. These stay: the newest run of each stream, versions of
    unpublished batches, versions younger than 24h, and versions needed by a dead letter. The newest state is never
    deleted. A redelivered message whose version was truncated is too_late. Versions of single messages with outputs
    stay until the consumer acknowledges the messages, or --acknowledged-after asserts this. --export first writes
    versions and dead letters to files, and reads them back.

        consistent truncate --policy set --handler ShootingRange \
            --older-than 90d --store sqlite:///store.db --table games

    Without rules, the policies of the table apply: the policy of the stream, otherwise of the handler, otherwise of
    the table. Held streams are never truncated, whatever rules are given.

    --documents also deletes documents of attempts that never committed a version: of single messages after
    --dead-after, of batches after they are published or abandoned.

        consistent truncate --app samples.shooting_range:app --algorithm outbox \
            --older-than 7d --dry-run --store sqlite:///store.db --table games

    With an outbox it deletes ids of messages processed before --older-than, except for unfinished messages. A later
    copy of such a message is processed again, unnoticed: keep ids for longer than copies may be delivered.

    Only one truncation of a table runs at a time. After an interruption, run it again to finish.
    """
    screen, dry_run = Screen(as_json), choices.dry_run
    if policy.policy and only_:
        raise UsageError("--policy cleans nothing up: omit --only.")
    if policy.carry_out(states, choices, screen, yes=yes):
        return
    states = require_table(states)
    kinds = _kinds(states, choices, options, only_)
    if kinds == ["ids"]:
        found, said = _forget(states, app, options.algorithm, choices, others=others, scan=spark, yes=yes)
        screen.put({"dry_run": dry_run, "ids": found}, said)
        return
    document: dict[str, Any] = {"dry_run": dry_run}
    if "versions" in kinds:
        _check_cut(states, choices, screen)
    if "documents" in kinds:
        url = options.documents or ""
        document["documents"] = _sweep(states, url, dead_after, screen, dry_run=dry_run, yes=yes)
    if "versions" in kinds:
        _cut(states, choices, spark.for_versions(), screen, document, yes=yes)
    else:
        screen.put(document)


def _kinds(
    states: TablePlace, choices: TruncationChoices, options: BatchOptions, only_: CleanUpKind | None
) -> list[CleanUpKind]:
    possible: dict[CleanUpKind, bool] = {
        "versions": options.algorithm == STATE_BASED,
        "documents": options.documents is not None,
        "ids": options.algorithm in ("outbox", "deduplication-store"),
    }
    kinds = [only_] if only_ else [kind for kind, is_possible in possible.items() if is_possible]
    if not kinds or not possible[kinds[0]]:
        raise UsageError(_MISSING[kinds[0] if kinds else "ids"])
    if "versions" in kinds and not choices.is_given:
        has_rules = on_table(states, lambda table: Policies(table, system_clock).has_rules())
        if not has_rules and (kinds == ["versions"] or choices != TruncationChoices(dry_run=choices.dry_run)):
            raise UsageError(NO_RULES)
        if not has_rules:
            kinds.remove("versions")
    return kinds


def _check_cut(states: TablePlace, choices: TruncationChoices, screen: Screen) -> None:
    """Check the rules, report folder and lease of a truncation before anything is deleted.

    Raises `UsageError` for invalid rules or an existing folder, and `LeaseHeldError` if another truncation is running.
    """
    if choices.is_given:
        choices.as_of(system_clock(), OpenBatches())
    if choices.report is not None and choices.report.exists():
        raise UsageError(f"{choices.report} exists: use a new folder for the report.")

    async def check_lease(table: Table) -> None:
        leases = CleanUpLease(table, system_clock)
        if not choices.take_over:
            await leases.check_free()
            return
        held = await leases.find()
        if held is not None:
            screen.note(f"Taking over from {held}, which stops before its next streams.")

    if not choices.dry_run:
        on_table(states, check_lease)


def _cut(
    states: TablePlace,
    choices: TruncationChoices,
    spark: SparkOptions,
    screen: Screen,
    document: Mapping[str, Any],
    *,
    yes: bool,
) -> None:
    by = "by these rules" if choices.is_given else "by the policies of the table"
    if not choices.dry_run:
        confirm(f"Truncating the streams of {states.table} {by}", yes=yes)
    spark.check_scope(states)
    from runtime.spark.truncation import truncate as cut

    stopped = "Stopped. All streams are intact: run the same command again to finish."
    with spark.working(stopped) as (session, progress):
        progress.step(f"{'Scanning the streams' if choices.dry_run else 'Truncating'} {by}")
        done = cut(session, store=states.store, table=states.table, **asdict(choices))
        progress.done()
        described = describe_truncation(done.counts, done.requests, dry_run=choices.dry_run)
        screen.put({**described, **document}, *parts_of_truncation(described))
    damaged = described["held"].get(HeldBy.STREAM_DAMAGED)
    if damaged:
        raise NotPossibleError(f"{counted(damaged, 'corrupt stream')} skipped.")
