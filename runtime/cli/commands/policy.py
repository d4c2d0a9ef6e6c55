"""`consistent policy`: what may be cut of the streams of a table, kept in the table."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from runtime.algorithms.state_based.truncation_rules import PolicyRules
from runtime.batches.open_batches import OpenBatches
from runtime.cleanup.policies import Policies, Policy, Scope
from runtime.cli.console import Screen
from runtime.cli.durations import duration_text
from runtime.cli.options import AsJson, StoreUrl, TableName
from runtime.cli.reports.tables import Cell, make_table, moment_cell, moment_text
from runtime.cli.stores import on_table
from runtime.clock import system_clock
from runtime.errors import UsageError

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
