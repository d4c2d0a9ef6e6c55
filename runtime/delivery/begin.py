"""A whole delivery: from the urls of its keys and its records to the counts of its results."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

from runtime.algorithms.last_hop.settings import DeliverySettings
from runtime.delivery.deliver import Delivery
from runtime.delivery.key_stores import DEFAULT_TABLE, open_keys, weaknesses
from runtime.delivery.outgoing import OutgoingMessage
from runtime.delivery.policy import DeliveryPolicy
from runtime.delivery.records import DeliveryRecord, RecordFiles, Result
from runtime.delivery.sending import Sender


async def deliver(
    messages: Iterable[OutgoingMessage],
    sender: Sender,
    *,
    keys: str,
    records: str | Path,
    keys_table: str = DEFAULT_TABLE,
    settings: DeliverySettings | None = None,
    policy: DeliveryPolicy | None = None,
    on_record: Callable[[DeliveryRecord], object] | None = None,
    on_remark: Callable[[str], object] | None = None,
    stopped: asyncio.Event | None = None,
) -> Counter[Result]:
    """Deliver messages with a sender, write a record of each, and count the results.

    `keys` is the url of a store, with a table of the name `keys_table`, or of a Redis. `records` is a folder or a url:
    messages that have a final record in it are passed over, so a delivery that was killed goes on when it is called
    again with the same folder and keys. `settings` say to whom is sent at least once; without them, to nobody.

    `on_record` is called with each record, `on_remark` with what the keys' store may forget. Set `stopped` to end
    early: what is being sent is waited for.

    A new message costs two requests of the keys, and one that was sent before three. Raises `DeliveryStoppedError` when
    the receiver takes no message for too long, and `UsageError` for settings that cannot be, and when no Redis answers.
    """
    files = RecordFiles.open(records)
    async with open_keys(keys, keys_table) as opened:
        if on_remark is not None:
            for remark in await weaknesses(opened):
                on_remark(remark)
        delivery = Delivery(
            sender,
            opened,
            files,
            name=files.name,
            settings=settings,
            policy=policy,
            on_record=on_record,
            stopped=stopped,
        )
        return await delivery.run(messages)
