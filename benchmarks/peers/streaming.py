"""`streaming-ids`, `streaming-dropped`: Spark's own stateful streaming, `transformWithStateInPandas` on RocksDB.

The log is a file stream that is read with the trigger `availableNow`, as Spark's guide recommends for work that
comes in batches; RocksDB uploads change logs, and outcomes go to the Parquet sink. The state of a game is a value
state. Known message ids are a map state beside it (`streaming-ids`), or are dropped before by Spark's own
`dropDuplicates` with its state (`streaming-dropped`). Durable: states are in the checkpoint and outcomes in the
sink's log when a micro-batch is committed. Only the newest state is kept; a duplicate publishes nothing again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from benchmarks.contenders.spark import SparkContender
from benchmarks.shooting import HANDLER, States, decode, decode_state, encode_state, handle, initial_state

_STATE_STORE = "spark.sql.streaming.stateStore"
_SETTINGS = {
    f"{_STATE_STORE}.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    f"{_STATE_STORE}.rocksdb.changelogCheckpointing.enabled": "true",
}
_OUTCOME = (
    "message_id string, type string, handler string, business_id string, status string, version long, "
    "outputs array<struct<message_id:string,type:string,body:string>>"
)
Outcome = tuple[str, str, str, str, str, int, list[tuple[str, str, str]]]
_NAMES = ["message_id", "type", "handler", "business_id", "status", "version", "outputs"]


class Games(StatefulProcessor):
    """Handles the messages of one game, each once if its id is looked up."""

    def __init__(self, *, looks_up_ids: bool) -> None:
        self._looks_up_ids = looks_up_ids

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state variables."""
        self._game = handle.getValueState("game", "state string, version long")
        self._seen: Any = None
        if self._looks_up_ids:
            self._seen = handle.getMapState("seen", "message_id string", "version long")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: ANN401, ARG002, N802, N803 - Spark's signature
        """Handle the new messages of a game in their order."""
        game = str(key[0])
        stored = self._game.get()
        state, version = (decode_state(stored[0]), stored[1]) if stored else (initial_state(), 0)
        outcomes: list[Outcome] = []
        frame = pd.concat(rows).sort_values("sequence")
        for message_id, type_, body in zip(frame["message_id"], frame["type"], frame["body"], strict=True):
            if self._is_known(message_id, version + 1):
                outcomes.append((message_id, type_, HANDLER.name, game, "duplicate", version, []))
                continue
            version += 1
            state, published = handle(state, type_, decode(type_, body), message_id, game)
            outputs = [(output.message_id, output.type, output.body.decode()) for output in published]
            outcomes.append((message_id, type_, HANDLER.name, game, "processed", version, outputs))
        self._game.update((encode_state(state), version))
        yield pd.DataFrame(outcomes, columns=_NAMES)

    def _is_known(self, message_id: str, version: int) -> bool:
        if self._seen is None:
            return False
        if self._seen.containsKey((message_id,)):
            return True
        self._seen.updateValue((message_id,), (version,))
        return False


class StreamingIds(SparkContender):
    """Keep the ids of handled messages in the state of their game."""

    durability = "newest states and ids in a RocksDB checkpoint"
    looks_up_ids = True

    def start(self) -> None:
        """Start a session with the state store that the operator asks for."""
        super().start()
        for name, value in _SETTINGS.items():
            self.spark.conf.set(name, value)

    def work(self) -> None:
        """Run the query until all that is there is handled."""
        schema = self.spark.read.parquet(self.log.path).schema
        messages = self._unique(self.spark.readStream.schema(schema).parquet(self.log.path))
        game = sf.from_json("body", "struct<game_id:string>").getField("game_id")
        outcomes = (
            messages.select("message_id", "type", "body", "sequence", game.alias("business_id"))
            .groupBy("business_id")
            .transformWithStateInPandas(Games(looks_up_ids=self.looks_up_ids), _OUTCOME, "Append", "None")
        )
        sink = outcomes.writeStream.format("parquet").option("path", str(self.folder / "out"))
        sink = sink.option("checkpointLocation", self._checkpoint).outputMode("append")
        sink.trigger(availableNow=True).start().awaitTermination()

    def states(self) -> States:
        """Read the states from the checkpoint."""
        operators = self.spark.read.format("state-metadata").load(self._checkpoint)
        found = operators.where(sf.col("operatorName").startswith("transformWithState")).first()
        operator = found["operatorId"] if found else 0
        reader = self.spark.read.format("statestore").option("operatorId", operator)
        games = reader.option("stateVarName", "game").load(self._checkpoint)
        rows = games.select("key.business_id", "value.state").collect()
        return {row["business_id"]: row["state"] for row in rows}

    def _unique(self, messages: DataFrame) -> DataFrame:
        return messages

    @property
    def _checkpoint(self) -> str:
        return str(self.folder / "checkpoint")


class StreamingDropped(StreamingIds):
    """Let Spark drop duplicates before they come to their game."""

    durability = "newest states in a RocksDB checkpoint, ids in another"
    looks_up_ids = False

    def _unique(self, messages: DataFrame) -> DataFrame:
        return messages.dropDuplicates(["message_id"])
