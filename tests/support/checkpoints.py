"""Checkpoints as Spark 4 writes them, made without Spark."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from runtime.spark.streaming import Checkpoint

TIME = 1_795_360_880_010


@dataclass(frozen=True)
class WrittenCheckpoint:
    folder: Path

    @classmethod
    def begun(cls, folder: Path, id_: str = "4021d5cb") -> WrittenCheckpoint:
        for name in ("offsets", "sources/0"):
            (folder / name).mkdir(parents=True)
        (folder / "metadata").write_text(json.dumps({"id": id_}))
        return cls(folder)

    @property
    def read(self) -> Checkpoint:
        return Checkpoint(str(self.folder))

    def plan(self, epoch: int, *offsets: object, version: str = "v1", watermark: int = 0) -> None:
        lines = [offset if isinstance(offset, str) else json.dumps(offset) for offset in offsets]
        settings = json.dumps({"batchWatermarkMs": watermark, "conf": {}})
        (self.folder / "offsets" / str(epoch)).write_text("\n".join([version, settings, *lines]))

    def plan_files(self, epoch: int, *files: str) -> None:
        self.list_files(str(epoch), [(epoch, file) for file in files])
        self.plan(epoch, {"logOffset": epoch})

    def list_files(self, name: str, files: Sequence[tuple[int, str]]) -> None:
        entries = [
            json.dumps({"path": path, "timestamp": TIME, "batchId": number}, separators=(",", ":"))
            for number, path in files
        ]
        (self.folder / "sources" / "0" / name).write_text("\n".join(["v1", *entries]))

    def unlist_files(self, name: str) -> None:
        (self.folder / "sources" / "0" / name).unlink()
