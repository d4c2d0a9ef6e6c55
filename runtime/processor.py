"""Handle single messages without Spark, for consumers of a queue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial

from eventstore import Table
from handlers import App
from handlers.app import Route
from handlers.guard import guarded
from runtime.algorithms import choice
from runtime.algorithms.algorithm import AT_ONCE, Algorithm, Publish, fresh_id, has_stream
from runtime.algorithms.choice import AlgorithmName, Dependencies
from runtime.algorithms.outbox.stores import TokenStore, issue
from runtime.clock import Clock, system_clock
from runtime.dead_letters import TableLetters, letters_of_message, remove
from runtime.documents import DocumentStore, DocumentSweep, open_documents
from runtime.errors import UsageError
from runtime.ledger.batch import BatchContext, OpenBatches
from runtime.ledger.ledger import ConsumerBatches, Ledger
from runtime.ledger.settings import TableOwner, TableSettings
from runtime.messages.envelope import Envelope
from runtime.messages.outcome import Outcome
from runtime.messages.parsing import business_id_of, prepare, refused_for_size, unroutable
from runtime.messages.sizes import USUAL, MessageLimits
from runtime.retries import RetryPolicy, until_undisturbed
from runtime.supervision import Alarm, supervised
from runtime.telemetry import Metrics, has_meters, message_spans
from runtime.versions.properties import error_location


class Processor:
    """Runs the handlers of an app on single messages. Acknowledge a message after `process` returns.

    `publish` is awaited for each output, after the effect of its message is stored durably. It is called again with the
    same output if the message is redelivered. `guard` rejects messages whose handler bypasses its context to use a
    clock, random numbers or I/O.

    `algorithm` is described in docs/algorithms.md. Never change the algorithm of a table. `deduplication_store` and
    `token_store` are tables for the algorithms that need them. The default is the table of the states.

    `settings` come from `TableSettings.of(table)`, or from `TableSettings.claim(table, app)`, which makes the app the
    owner of the table. By default they are read before the first message, with one request.

    `acknowledge_every` is the period after which the ledger records that all outputs are published, so that truncation
    may delete the versions. Costs two or three requests at the start of a period and two at its end. Call `flush` when
    the consumer stops. Only the state-based algorithm supports this option.

    A message over one of the `limits` becomes a dead letter without its body, so keep the message yourself.
    `handler_timeout` interrupts slow handlers (see `runtime.supervision.Alarm`). `documents` is the URL of a folder, or
    a store, for `context.store_document` (docs/side-effects.md). Only the state-based algorithm supports documents.

    `metrics` are recorded for OpenTelemetry if it is configured. Pass `Metrics()` to also show its `text()` to
    Prometheus (docs/monitoring.md).

    Raises `UsageError` for an unknown algorithm, for an option that the algorithm does not support, and at the first
    message for a table of another app.
    """

    def __init__(
        self,
        app: App,
        table: Table,
        publish: Publish,
        *,
        clock: Clock = system_clock,
        retries: RetryPolicy | None = None,
        guard: bool = False,
        algorithm: AlgorithmName = "state-based",
        deduplication_store: Table | None = None,
        token_store: Table | None = None,
        acknowledge_every: timedelta | None = None,
        limits: MessageLimits = USUAL,
        handler_timeout: timedelta | None = timedelta(seconds=30),
        documents: str | DocumentStore | None = None,
        settings: TableSettings | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        choice.check_name(algorithm)
        stores = {"deduplication_store": deduplication_store, "token_store": token_store}
        choice.check_stores(algorithm, **stores, documents=documents)
        self._metrics = metrics or Metrics(is_on=has_meters())
        table = self._metrics.watching(table)
        retries = replace(retries or RetryPolicy(), noted=self._metrics.retried)
        self._consumer_batches = None
        if acknowledge_every is not None:
            if algorithm != "state-based":
                raise UsageError(
                    f"acknowledge_every needs the algorithm state-based: omit it with {algorithm}."
                )
            length = acknowledge_every // timedelta(microseconds=1)
            self._consumer_batches = ConsumerBatches(Ledger(table, clock, retries), clock, fresh_id, length)
        app = guarded(app) if guard else app
        if handler_timeout is not None:
            app = supervised(app, Alarm(handler_timeout.total_seconds()))
        self._app = app
        self._tokens = TokenStore(token_store or table) if algorithm == "tokens" else None
        self._table, self._clock, self._retries, self._limits = table, clock, retries.beside(table), limits
        self._documents = open_documents(documents) if isinstance(documents, str) else documents
        self._algorithm: AlgorithmName = algorithm
        self._dependencies = Dependencies(
            app, table, deduplication_store, token_store, publish, clock, retries,
            BatchContext(limits=limits), self._consumer_batches, self._documents,
        )  # fmt: skip
        self._algorithms: Mapping[str, Algorithm] | None = None
        if settings is not None:
            self._algorithms = self._made_for(settings)

    async def process(self, message: Envelope) -> list[Outcome]:
        """Handle a message in each handler of its type, publish the outputs, and return the outcomes.

        A rejected message becomes a dead letter, stored with its stream. Its redeliveries are rejected too, until
        `redrive`.

        The state-based algorithm needs one query and one transaction per handler for a new message, and one or two
        queries for a duplicate; docs/algorithms.md has the costs of the other algorithms. Raises `StoredDataError` for
        a corrupt stream.
        """
        return await self._process(message)

    async def redrive(self, message: Envelope) -> list[Outcome]:
        """Handle a message like `process`, even if it was rejected before. The body may have been edited.

        Rejections by an open batch are final, so that all attempts of the batch agree. Dead letters without a stream
        are deleted once their message has been handled. Costs one more request than `process`, and one more for every
        1,000 dead letters without a stream in the table.
        """
        table, open_batches = self._table, await self._open_batches()
        find = partial(letters_of_message, table, message, choice.handlers_of(self._app, message.type))
        letters = await until_undisturbed(self._retries, find)
        outcomes = await self._process(message, open_batches)
        for found in letters:
            if open_batches.is_finished(found.letter.batch, found.letter.batch_number):
                delete = partial(remove, table, found.row or "", found.etag or "")
                await until_undisturbed(self._retries, delete)
        return outcomes

    async def _process(self, message: Envelope, redrive_beside: OpenBatches | None = None) -> list[Outcome]:
        routes = self._app.routes(message.type)
        refused = refused_for_size(message, self._limits)
        if refused is not None:
            names: Sequence[str | None] = choice.handlers_of(self._app, message.type) or (None,)
            return [await self._kept(refused._replace(handler=name), redrive_beside) for name in names]
        if not routes:
            return [await self._kept(unroutable(message, None), redrive_beside)]
        return [await self._handle(route, message, redrive_beside) for route in routes]

    async def issue(self, message: Envelope) -> Envelope:
        """Return the message with a new token, or unchanged if the algorithm needs none. Costs one request."""
        if self._tokens is None:
            return message
        return await issue(self._tokens, message, choice.handlers_of(self._app, message.type))

    async def flush(self) -> int:
        """End all open periods of `acknowledge_every`. Call this when the consumer stops. Costs two requests.

        Returns the number of periods that stay open because some of their messages are in progress or failed (see
        `consistent batches`). No-op without `acknowledge_every`.
        """
        return 0 if self._consumer_batches is None else await self._consumer_batches.flush()

    async def sweep(self, older_than: timedelta = AT_ONCE) -> int:
        """Finish messages whose worker died more than `older_than` ago, and publish their outputs. Return their number.

        The state-based algorithm instead deletes the documents of uncommitted attempts that began more than
        `older_than` ago, and returns the number of attempts.
        """
        with error_location(self._table):
            if self._documents is not None:
                open_batches = await self._open_batches()
                sweep = DocumentSweep(self._table, self._documents, self._clock, self._retries, open_batches)
                return (await sweep.sweep(older_than)).attempts
            algorithms = (await self._ready()).values()
            return sum([await algorithm.sweep(older_than) for algorithm in algorithms])

    async def evict(self, older_than: timedelta, *, dry_run: bool = False) -> int:
        """Delete the ids of messages processed more than `older_than` ago. Return the number of ids.

        A later copy is processed again. Applies to the outbox and the deduplication store. Other algorithms return 0.
        With `dry_run`, only counts the ids. Costs one request for every 1,000 entities, one for each entity, and one
        more for each entity with old ids.
        """
        with error_location(self._table):
            algorithms = (await self._ready()).values()
            return sum([await algorithm.evict(older_than, dry_run=dry_run) for algorithm in algorithms])

    async def _open_batches(self) -> OpenBatches:
        ledger = Ledger(self._table, self._clock, self._retries)
        return await until_undisturbed(self._retries, ledger.open_batches)

    async def _ready(self) -> Mapping[str, Algorithm]:
        if self._algorithms is None:
            read = partial(TableSettings.of, self._table)
            self._algorithms = self._made_for(await until_undisturbed(self._retries, read))
        return self._algorithms

    def _made_for(self, settings: TableSettings) -> Mapping[str, Algorithm]:
        settings.check_use()
        settings.check_owner(TableOwner.of(self._app))
        app = self._app.keyed(settings.draw_key)
        return choice.make_algorithms(self._algorithm, replace(self._dependencies, app=app))

    async def _handle(self, route: Route, message: Envelope, redrive_beside: OpenBatches | None) -> Outcome:
        handler = self._app.handlers[route.handler]
        business_id = handler.interceptor.parse(partial(business_id_of, route, message), ())
        system = {"messaging.system": "consistent"}
        with message_spans([message], handler.name, lambda _: system) as (traced, note):
            delivery = prepare(handler, business_id, traced[0], self._limits)
            with error_location(self._table):
                algorithms = await self._ready()
                outcome = await algorithms[handler.name].process(delivery, redrive_beside=redrive_beside)
            if note:
                note(0, outcome)
        return await self._kept(outcome, redrive_beside)

    async def _kept(self, outcome: Outcome, redrive_beside: OpenBatches | None) -> Outcome:
        """Count and return an outcome. If it is a dead letter without a stream, also store it.

        `redrive_beside`: in a redrive, the open batches of the table, otherwise None.
        """
        self._metrics.handled([outcome])
        if outcome.is_dead_letter and not has_stream(outcome):
            batch = BatchContext().redriving(redrive_beside)
            await TableLetters(self._table, batch, self._clock, self._retries).keep([outcome])
        return outcome
