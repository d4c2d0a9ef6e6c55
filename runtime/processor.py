"""The processor: handles messages one at a time, without Spark.

For a consumer of a queue: acknowledge a message after `process` has returned. A crash before that brings the
message again, and the copy publishes the same outputs again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from eventstore import Table
from handlers import App
from handlers.app import HandlerDefinition
from handlers.guard import guarded
from handlers.route import KeyKind, Route
from runtime.backoff import BackoffPolicy
from runtime.clock import Clock, system_clock
from runtime.envelope import Envelope
from runtime.fold import BatchContext
from runtime.message_ids import canonical
from runtime.outcome import Outcome, Output, Reason, dead_letter
from runtime.preparation import prepare, read_body
from runtime.state_based import StateBased

Publish = Callable[[Output], Awaitable[None]]


class Processor:
    """Runs the handlers of an app on single messages.

    `publish` is awaited once for each output, after the version that it belongs to is stored durably; it may be
    called again with the same output when a message comes again. When `process` returns, what the message did is
    stored durably, whether it has outputs or not. With `guard`, a handler that looks at a clock, at chance or at the
    outside makes a dead letter of its message.
    """

    def __init__(
        self,
        app: App,
        table: Table,
        publish: Publish,
        *,
        clock: Clock = system_clock,
        batch: BatchContext | None = None,
        backoff: BackoffPolicy | None = None,
        guard: bool = False,
    ) -> None:
        self._app = app = guarded(app) if guard else app
        self._table = table
        self._publish = publish
        self._algorithms = {
            name: StateBased(table, handler, clock, batch or BatchContext(), backoff or BackoffPolicy())
            for name, handler in app.handlers.items()
        }

    async def process(self, message: Envelope) -> list[Outcome]:
        """Handle a message in each handler that takes its type, publish the outputs, and return the outcomes.

        Costs, for each handler, one query and one transaction for a new message, two queries for a duplicate.
        """
        routes = self._app.routes(message.type)
        if not routes:
            return [
                dead_letter(
                    message, Reason.UNKNOWN_TYPE, f"No handler takes messages of type {message.type}."
                )
            ]
        outcomes = [await self._handle(self._app.handlers[route.handler], route, message) for route in routes]
        if any(outcome.version is not None for outcome in outcomes):
            await self._table.barrier()
        for outcome in outcomes:
            for output in outcome.outputs:
                await self._publish(output)
        return outcomes

    async def _handle(self, handler: HandlerDefinition, route: Route, message: Envelope) -> Outcome:
        business_id = _given(route, message) or _read(route, message)
        prepared = prepare(handler, business_id, message)
        if isinstance(prepared, Outcome) or business_id is None:
            return prepared  # type: ignore[return-value] # nothing is prepared without a business id
        (outcome,) = await self._algorithms[handler.name].process(business_id, [prepared])
        return outcome


def _given(route: Route, message: Envelope) -> str | None:
    """Return the business id that the sender names: a UUID in any spelling is one."""
    if message.business_id and route.key_kind is KeyKind.UUID:
        return canonical(message.business_id)
    return message.business_id


def _read(route: Route, message: Envelope) -> str | None:
    try:
        return route.business_id(read_body(route, message.body))
    except Exception:  # noqa: BLE001 - what is wrong with a body is told when it is prepared
        return None
