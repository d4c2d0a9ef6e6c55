"""Publishing on Spark, and workers that die while they publish."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from eventstore import connect
from runtime.clock import system_clock
from runtime.errors import TargetError
from runtime.ledger.ledger import Ledger
from runtime.publishing import DeliverySettings
from runtime.publishing.publisher import PublishOptions, TargetOptions
from runtime.publishing.runner import publish
from runtime.publishing.targets.function import FunctionTarget
from runtime.spark import publish as publish_on_spark
from tests.publishing.cases import AT_LEAST_ONCE as BOUNDLESS
from tests.publishing.cases import FunctionCase, SqliteCase
from tests.publishing.kills import CHUNK, Counts, kill_workers_everywhere
from tests.support.done_batches import BATCH, TABLE, games, make_batch

GAMES, EACH, SLICES = 9, 6, 5
SHORT = timedelta(seconds=2)
AT_LEAST_ONCE = DeliverySettings(frozenset("*"), lock_limit=SHORT)


@pytest.fixture
def store(tmp_path):
    """Make a batch of nine games with six outputs each."""
    url = f"sqlite:///{tmp_path}/store.db"
    make_batch(url, tmp_path / "out", games(GAMES, EACH))
    return url


def append(file, output):
    """Note in a file of its own for each worker what it was given."""
    with Path(f"{file}.{os.getpid()}").open("a") as opened:
        opened.write(f"{output!r}\n")


def append_but_for_a_game(file, output):
    """Take no outputs of a game for the moment."""
    if output.message_id.startswith("g4-"):
        raise ConnectionError("no")
    append(file, output)


def target(file, options, send=append):
    return target_named("tests:send", file, options, send)


def noted(file):
    """Return what workers were given, that of each in its order."""
    return [line for path in file.parent.glob(f"{file.name}.*") for line in path.read_text().splitlines()]


def of_game(number, lines):
    return [line for line in lines if f"message_id='g{number}-" in line]


async def publish_here(url, folder, to):
    """Publish the batch without Spark."""
    async with connect(url) as store:
        table = await store.table(TABLE)
        record = await Ledger(table, system_clock).get(BATCH)
        return await publish(table, record, str(folder / "out"), to, PublishOptions(slices=SLICES))


@pytest.mark.connect
def test_it_sends_the_records_of_one_process_and_keeps_the_order(spark, store, tmp_path):
    there, here = tmp_path / "there", tmp_path / "here"

    done = publish_on_spark(
        spark, BATCH, partial(target, there), store=store, table=TABLE, options=PublishOptions(slices=SLICES)
    )
    again = asyncio.run(publish_here(store, tmp_path, target(there, with_keys(store))))
    asyncio.run(publish_here(store, tmp_path, target_named("another", here, with_keys(store, "others"))))

    maker = {"status": "duplicate", "made_by": BATCH, "made_by_number": 1}
    copies = [{**row, **maker} for rows in games(GAMES, EACH) for row in rows]
    make_batch(store, tmp_path / "out", [copies], batch_id="b2")
    later = publish_on_spark(spark, "b2", partial(target, there), store=store, table=TABLE)

    assert (done.slices, done.outputs) == (SLICES, GAMES * EACH)
    assert (later.outputs, later.skipped) == (0, {BATCH: GAMES * EACH})
    assert (again.slices, again.outputs) == (0, 0)
    assert sorted(noted(there)) == sorted(noted(here))
    for number in range(GAMES):
        assert of_game(number, noted(there)) == of_game(number, noted(here))


def target_named(name, file, options, send=append):
    return FunctionTarget(
        name, replace(options, send=partial(send, file), settings=AT_LEAST_ONCE, timeout=SHORT / 2)
    )


def with_keys(store, table=TABLE):
    """Return the options that workers get."""
    return TargetOptions(keys=store, keys_table=table, batch_id=BATCH)


@pytest.mark.connect
@pytest.mark.thorough
def test_what_a_target_did_not_take_is_sent_without_spark_and_slices_that_are_out_stay_out(
    spark, store, tmp_path
):
    file = tmp_path / "sent"
    with pytest.raises(TargetError, match=r"did not accept g4-0 in 1 attempts: ConnectionError: no"):
        publish_on_spark(
            spark,
            BATCH,
            partial(target, file, send=append_but_for_a_game),
            store=store,
            table=TABLE,
            target=TargetOptions(attempts=1),
            options=PublishOptions(slices=SLICES),
        )
    before = noted(file)

    done = asyncio.run(publish_here(store, tmp_path, target(file, with_keys(store))))

    assert 1 <= done.slices < SLICES
    assert len(before) + done.outputs >= GAMES * EACH
    assert sorted(noted(file)) == sorted(set(noted(file)))
    assert len(noted(file)) == GAMES * EACH


@pytest.mark.thorough
def test_to_sqlite_each_output_is_written_once(spark, tmp_path):
    found = kill_workers_everywhere(spark, SqliteCase(tmp_path / "target.db"), tmp_path, every=9)

    assert found.kills >= 2
    assert found.counts == Counts()


@pytest.mark.thorough
def test_at_least_once_loses_nothing_and_repeats_a_chunk_at_most(spark, tmp_path):
    case = FunctionCase(tmp_path / "sent", BOUNDLESS)

    found = kill_workers_everywhere(spark, case, tmp_path, every=12)

    assert found.kills >= 2
    assert (found.counts.lost, found.counts.disorder) == (0, 0)
    assert found.counts.duplicates <= found.kills * CHUNK
