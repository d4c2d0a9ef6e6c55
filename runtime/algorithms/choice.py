"""Make algorithms by name, and check the options that belong to one of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal, Protocol, get_args

from eventstore import Table, connect
from handlers import App
from runtime.algorithms.algorithm import Algorithm, Publish, fresh_id
from runtime.algorithms.outbox import algorithm as outbox
from runtime.algorithms.outbox.stores import DeduplicationStore, TokenStore
from runtime.algorithms.state_based.algorithm import StateBased, StateBasedOneByOne
from runtime.clock import Clock, system_clock
from runtime.documents import Documents, DocumentStore
from runtime.errors import UsageError
from runtime.ledger.batch import NOTHING, BatchContext, Seen
from runtime.ledger.ledger import STATE_BASED, ConsumerBatches
from runtime.messages.outcome import Outcome, Output
from runtime.messages.parsing import Delivery
from runtime.retries import RetryPolicy

AlgorithmName = Literal["state-based", "outbox", "deduplication-store", "tokens"]

_FILE = "sqlite:///"


class BatchAlgorithm(Protocol):
    """Processes the sorted messages of a batch for one handler, one stream at a time."""

    async def process(
        self, business_id: str, deliveries: Sequence[Delivery], seen: Seen = NOTHING
    ) -> Sequence[Outcome]:
        """Handle the deliveries of one stream in order. Return an outcome for each.

        `seen`: facts about earlier deliveries of the stream in this batch.
        """


async def published_by_nobody(_: Output) -> None:
    """Raise `AssertionError`: a batch publishes by committing its outcomes."""
    raise AssertionError("Batches publish by committing their outcomes.")


@dataclass(frozen=True, slots=True)
class Dependencies:
    """What `make_algorithms` needs. Without a separate store, ids and tokens are stored in `table`."""

    app: App
    table: Table  # of states
    deduplication_store: Table | None = None
    token_store: Table | None = None
    publish: Publish = published_by_nobody  # for single messages
    clock: Clock = system_clock
    retries: RetryPolicy = field(default_factory=RetryPolicy)
    batch: BatchContext = field(default_factory=BatchContext)
    consumer_batches: ConsumerBatches | None = None
    documents: DocumentStore | None = None


def make_algorithms(name: AlgorithmName, given: Dependencies) -> dict[str, Algorithm]:
    """Return an algorithm for each handler of the app, by handler name. Raises `UsageError` for an unknown name."""
    check_name(name)
    if name != "state-based":
        return {
            handler: outbox.OutboxOneByOne(algorithm=algorithm, publish=given.publish)
            for handler, algorithm in make_outboxes(name, given).items()
        }
    return {
        handler: StateBasedOneByOne(algorithm, given.publish, given.consumer_batches)
        for handler, algorithm in _make_state_based(given).items()
    }


def make_batch_algorithms(name: AlgorithmName, given: Dependencies) -> dict[str, BatchAlgorithm]:
    return dict(_make_state_based(given) if name == "state-based" else make_outboxes(name, given))


def make_outboxes(name: AlgorithmName, given: Dependencies) -> dict[str, outbox.OutboxAlgorithm]:
    make: Callable[..., outbox.OutboxAlgorithm] = outbox.Outbox
    if name == "deduplication-store":
        store = DeduplicationStore(given.deduplication_store or given.table, given.clock)
        make = partial(outbox.OutboxWithDeduplicationStore, store=store)
    if name == "tokens":
        tokens = TokenStore(given.token_store or given.table)
        make = partial(outbox.TokenBased, tokens=tokens, recipients=partial(handlers_of, given.app))
    return {
        handler.name: make(
            table=given.table, handler=handler, clock=given.clock, retries=given.retries, batch=given.batch
        )
        for handler in given.app.handlers.values()
    }


def _make_state_based(given: Dependencies) -> dict[str, StateBased]:
    table, clock, retries, documents = given.table, given.clock, given.retries, None
    if given.documents is not None:
        documents = Documents(given.documents, table, clock, fresh_id, retries)
    return {
        handler.name: StateBased(table, handler, clock, given.batch, retries, documents=documents)
        for handler in given.app.handlers.values()
    }


def described_algorithm(name: str, place: tuple[str, str] | None) -> str:
    """Return the text that identifies an algorithm in the ledger.

    `place`: URL and name of the table of ids or tokens, if that is not the table of states.
    """
    if place is None:
        return name
    url, table = connect(place[0]).url, place[1]
    if url.startswith(_FILE):
        url = f"{_FILE}{Path(url.removeprefix(_FILE)).absolute()}"
    return f"{name} in {table} of {url}"


def check_name(name: str) -> None:
    """Raise `UsageError` for an unknown algorithm."""
    if name not in get_args(AlgorithmName):
        raise UsageError(f"Unknown algorithm {name!r}: use one of {', '.join(get_args(AlgorithmName))}.")


def check_swept(name: str) -> None:
    """Raise `UsageError` for the state-based algorithm, which stores no outputs to sweep."""
    if name == STATE_BASED:
        raise UsageError(
            "The state-based algorithm stores no outputs to sweep: run the messages again, or resume the crashed batch "
            "with its id."
        )


def check_stores(
    name: str, *, deduplication_store: object, token_store: object, documents: object = None
) -> None:
    """Raise `UsageError` if the algorithm does not use a store that is given. A store is `None` if not configured."""
    for given, store, algorithm in (
        (deduplication_store, "deduplication store", "deduplication-store"),
        (token_store, "token store", "tokens"),
        (documents, "document store", STATE_BASED),
    ):
        if given is not None and name != algorithm:
            raise UsageError(f"Only the algorithm {algorithm} uses a {store}: omit it with {name}.")


def handlers_of(app: App, message_type: str) -> list[str]:
    return [route.handler for route in app.routes(message_type)]
