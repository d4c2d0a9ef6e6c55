"""A driver to be killed: tests.stream_kills.driver FOLDER SEED ALGORITHM COMPACT_AFTER CORES PARTITIONS BROKER.

Runs the stream with the first handlers, lets the rest of the files come, and runs it with the second ones: from where
it is to its end. Says `ready` when Spark has started.
"""

import sys
from pathlib import Path
from typing import cast

from handlers import App
from runtime.algorithms.choice import AlgorithmName
from runtime.batch_options import BatchOptions
from runtime.spark import build_session
from runtime.spark.streaming import Stream
from tests.plugins.spark import QUICK
from tests.stream_kills.apps import first, second
from tests.stream_kills.world import NOW, KafkaWorld, Shape, World


def main(arguments: list[str]) -> None:
    folder, seed, algorithm, compact_after, cores, partitions, broker = arguments
    shape = Shape(int(seed), cast("AlgorithmName", algorithm), int(compact_after))
    world = KafkaWorld(Path(folder), shape, broker=broker) if broker else World(Path(folder), shape)
    options = BatchOptions(cascade=True, clock=NOW, partitions=int(partitions), algorithm=shape.algorithm)
    spark = build_session(f"local[{cores},20]", log_file=world.folder / "spark.log", settings=QUICK)
    print("ready", flush=True)

    def run(app: App) -> None:
        out, checkpoint = str(world.out), str(world.checkpoint)
        stream = Stream(app, world.place, out, "shots", checkpoint, shape.compact_after, options)
        stream.run(world.source(spark), "available-now")

    if not world.is_whole:
        if world.is_for_the_first:
            run(first)
        world.let_the_rest_come()
    run(second)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1:])
