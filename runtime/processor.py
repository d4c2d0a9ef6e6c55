"""The processor: handles messages one at a time, without Spark.

For a consumer of a queue: acknowledge a message after `process` has returned. A message that is redelivered after a
crash publishes the same outputs again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial

from eventstore import Table
from handlers import App
from handlers.guard import guarded
from handlers.handler import Route
from runtime.algorithms import choice
from runtime.algorithms.algorithm import AT_ONCE, Algorithm, Publish, fresh_id
from runtime.algorithms.choice import AlgorithmName, Dependencies
from runtime.algorithms.outbox.stores import TokenStore, issue
from runtime.algorithms.refusals import has_stream
from runtime.clock import Clock, system_clock
from runtime.dead_letters import TableLetters, letters_of_message, remove
from runtime.documents.protocol import DocumentSweep
from runtime.documents.store import DocumentStore, open_documents
from runtime.errors import UsageError
from runtime.ledger.batch import BatchContext, OpenBatches
from runtime.ledger.ledger import ConsumerBatches, Ledger
from runtime.ledger.settings import TableOwner, TableSettings
from runtime.messages.envelope import Envelope
from runtime.messages.limits import USUAL, MessageLimits
from runtime.messages.outcome import Outcome
from runtime.messages.parsing import business_id_of, prepare, refused_for_size, unroutable
from runtime.retries import RetryPolicy, until_undisturbed
from runtime.supervision import Alarm, supervised
from runtime.versions.properties import error_location


class Processor:
    """Runs the handlers of an app on single messages.

    `publish` is awaited once for each output, after the effect of its message is stored durably; it may be called again
    with the same output when the message is redelivered. When `process` returns, the effect of the message is stored
    durably, whether it has outputs or not. With `guard`, a handler that looks at a clock, at chance or at the outside
    makes a dead letter of its message.

    `algorithm` is one of those in docs/algorithms.md; one table is processed with the same one for ever.
    `deduplication_store` and `token_store` are tables for the algorithms that use them, which may be in another store;
    by default they are the table of the states.

    `settings` are those of the table, as `TableSettings.of(table)` reads them, or as `TableSettings.claim(table, app)`
    makes them: then the table belongs to the app, as after a batch. Without them they are read before the first
    message, which costs one request, and the table gets no mark.

    With `acknowledge_every` the ledger of the table is told, once in such a time, that the outputs of all messages
    handled until then are published, so that truncation may cut their versions: two or three requests when a time
    begins, and two when it ends. Call `flush` when the consumer stops. Only the state-based algorithm needs it.

    A message beyond `limits` is a dead letter, of which a note is kept only: keep it yourself. A handler that takes
    longer than `handler_timeout` makes a dead letter of its message (see `runtime.supervision.Alarm`). `documents` is
    where documents are kept that handlers store (`context.store_document`): the url of a folder, or a store of one's
    own (docs/side-effects.md). Only the state-based algorithm takes it.

    Raises `UsageError` for an unknown algorithm, for a store or a time that the algorithm does not use, and with the
    first message for a table that belongs to another app.
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
    ) -> None:
        choice.check_name(algorithm)
        choice.check_stores(algorithm, deduplication_store=deduplication_store, token_store=token_store)
        choice.check_documents(algorithm, documents)
        retries = retries or RetryPolicy()
        self._consumer_batches = None
        if acknowledge_every is not None:
            if algorithm != "state-based":
                raise UsageError(
                    f"Only state-based messages are acknowledged: leave it out with {algorithm}."
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
        given = Dependencies(app, table, deduplication_store, token_store, publish, clock, retries)
        self._dependencies = replace(
            given,
            batch=BatchContext(limits=limits),
            consumer_batches=self._consumer_batches,
            documents=self._documents,
        )
        self._algorithms: Mapping[str, Algorithm] | None = None
        if settings is not None:
            self._algorithms = self._made_for(settings)

    async def process(self, message: Envelope) -> list[Outcome]:
        """Handle a message in each handler that takes its type, publish the outputs, and return the outcomes.

        A message that a handler refuses is a dead letter, and is kept with its stream: its redeliveries are refused
        too, whatever the state is by then. `redrive` handles it again.

        State-based this costs, for each handler, one query and one transaction for a new message, one or two queries
        for a duplicate; docs/algorithms.md has the costs of the others. Raises `StoredDataError`, which names the row,
        for a stream that was damaged.
        """
        return await self._process(message)

    async def redrive(self, message: Envelope) -> list[Outcome]:
        """Handle a message as `process` does, also where it was refused before. Its body may have been mended.

        What a batch refused that has not ended stays refused, as all attempts at that batch have to find it so. A
        letter of the table, which reached no stream, is deleted once its message was handled. Costs one request more
        than `process`, which reads the ledger, and one for each 1,000 letters of the table.
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
        """Return a message from outside with the token that it needs: send that. Costs one request.

        Only the token-based algorithm needs it; with the others the message is returned as it is.
        """
        if self._tokens is None:
            return message
        return await issue(self._tokens, message, choice.handlers_of(self._app, message.type))

    async def flush(self) -> int:
        """Note in the ledger that all outputs are published, when the consumer stops. Costs two requests.

        Returns how many times of `acknowledge_every` stay open, as messages of them are being handled or have failed:
        `consistent batches` shows them. Without `acknowledge_every` it does nothing.
        """
        return 0 if self._consumer_batches is None else await self._consumer_batches.flush()

    async def sweep(self, older_than: timedelta = AT_ONCE) -> int:
        """Publish and finish messages whose worker died more than `older_than` ago, and return how many.

        State-based, with a store of documents: delete the documents of attempts that began so long ago and never
        committed, and return how many attempts.
        """
        with error_location(self._table):
            if self._documents is not None:
                open_batches = await self._open_batches()
                sweep = DocumentSweep(self._table, self._documents, self._clock, self._retries, open_batches)
                return (await sweep.sweep(older_than)).attempts
            algorithms = (await self._ready()).values()
            return sum([await algorithm.sweep(older_than) for algorithm in algorithms])

    async def evict(self, older_than: timedelta, *, dry_run: bool = False) -> int:
        """Forget the ids of messages processed longer ago, and return how many. A later copy is processed again.

        Only the outbox and the de-duplication store keep ids by age; the other algorithms return 0. With `dry_run`
        nothing is deleted. Costs one request for each 1,000 entities and one for each entity, and one more for each
        that has old ids.
        """
        with error_location(self._table):
            algorithms = (await self._ready()).values()
            return sum([await algorithm.evict(older_than, dry_run=dry_run) for algorithm in algorithms])

    async def _open_batches(self) -> OpenBatches:
        ledger = Ledger(self._table, self._clock, self._retries)
        return await until_undisturbed(self._retries, ledger.open_batches)

    async def _ready(self) -> Mapping[str, Algorithm]:
        """Return the algorithms of the handlers, made as the table's settings say, which are read the first time."""
        if self._algorithms is None:
            read = partial(TableSettings.of, self._table)
            self._algorithms = self._made_for(await until_undisturbed(self._retries, read))
        return self._algorithms

    def _made_for(self, settings: TableSettings) -> Mapping[str, Algorithm]:
        settings.check_owner(TableOwner.of(self._app))
        app = self._app.keyed(settings.draw_key)
        return choice.make_algorithms(self._algorithm, replace(self._dependencies, app=app))

    async def _handle(self, route: Route, message: Envelope, redrive_beside: OpenBatches | None) -> Outcome:
        handler = self._app.handlers[route.handler]
        business_id = handler.interceptor.parse(partial(business_id_of, route, message), ())
        delivery = prepare(handler, business_id, message, self._limits)
        with error_location(self._table):
            algorithms = await self._ready()
            outcome = await algorithms[handler.name].process(delivery, redrive_beside=redrive_beside)
        return await self._kept(outcome, redrive_beside)

    async def _kept(self, outcome: Outcome, redrive_beside: OpenBatches | None) -> Outcome:
        """Return an outcome; a dead letter that has no stream to be kept with is kept in the table."""
        if outcome.is_dead_letter and not has_stream(outcome):
            batch = BatchContext().redriving(redrive_beside)
            await TableLetters(self._table, batch, self._clock, self._retries).keep([outcome])
        return outcome
