"""Letters that a truncation gives up, as they were refused long ago: else they would hold the horizon for ever."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial

from eventstore import Partition, Stream, Table, pages
from runtime.algorithms.state_based.truncation_rules import TruncationRules
from runtime.retries import RetryPolicy, until_undisturbed
from runtime.storage import letters
from runtime.storage.damage import placed
from runtime.storage.head import Head
from runtime.storage.letters import Letter, Letters, given_up


async def take_letters(
    table: Table, key: str, rules: TruncationRules, retries: RetryPolicy, take: Callable[[Letter], None]
) -> frozenset[int]:
    """Pass the letters of one stream that the rules give up to `take`, and return their numbers.

    A letter may be passed several times. Costs nothing when letters are not given up, else a request for each stream,
    and one more where letters wait.
    """
    if rules.give_up is None:
        return frozenset()
    attempt = partial(_take_letters_once, Partition.exact(table, key), rules.give_up, take)
    with placed(table, key):
        return await until_undisturbed(retries.beside(table), attempt)


async def without_old_letters(
    stream: Stream,
    head: Head,
    rules: TruncationRules,
    *,
    dry_run: bool,
    kept: Collection[int] | None = None,
) -> tuple[Stream, Head, int]:
    """Give up the letters that were refused long ago. Return the stream and its head after it, and how many.

    Costs a query for a stream with letters, and a transaction when some are given up.
    """
    if rules.give_up is None or not head.waiting.count:
        return stream, head, 0
    before, latest = await _letters_of(stream.partition), rules.give_up
    changed, count = given_up(
        before.all, lambda letter: _is_old(latest, letter) and (kept is None or letter.number in kept)
    )
    if not count:
        return stream, head, 0
    head = head._replace(waiting=head.waiting.after(changed, 0))
    if dry_run:
        return replace(stream, properties=head.properties()), head, count
    _, changes = before.changed(changed)
    return await Stream.set_properties(stream, head.properties(), changes), head, count


async def _take_letters_once(
    partition: Partition, latest: int, take: Callable[[Letter], None]
) -> frozenset[int]:
    stream = await Stream.try_open(partition)
    if stream is None or not letters.read_waiting(stream.properties or {}).count:
        return frozenset()
    old = [letter for letter in (await _letters_of(partition)).waiting if _is_old(latest, letter)]
    for letter in old:
        take(letter)
    return frozenset(letter.number for letter in old)


async def _letters_of(partition: Partition) -> Letters:
    read = partial(
        partition.table.query, partition.key, letters.PREFIX, letters.LAST, select=letters.PROPERTIES
    )
    return letters.read_letters([row async for page in pages(read) for row in page.rows])


def _is_old(latest: int, letter: Letter) -> bool:
    return letter.refused_at <= latest
