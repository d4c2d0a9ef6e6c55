"""What pages read of outcome files: those of one batch, of one message, and the messages before and after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from runtime.explore.reading import ROWS
from runtime.messages.outcome import Reason, Status
from runtime.outcome_files import OutcomeFiles, OutcomeFilter, Row

BATCHES = 20
"""The batches that are searched for one page."""

_MOST = 3_000_000
"""The outcomes that are searched for one page."""

_DEPTH, _BREADTH = 3, 12  # of the graph of causes

Found = dict[str, Any]


def _open(folder: str, batch_id: str) -> OutcomeFiles | None:
    """Open the outcomes of a batch, or return None if they cannot be read here."""
    try:
        found = OutcomeFiles.find(folder, batch_id)
    except Exception:  # noqa: BLE001 - of any file system: the page shows that there is nothing
        return None
    return found if found.rounds else None


def of_batch(folder: str, batch_id: str, chosen: Mapping[str, str | None], skip: int) -> Found:
    """Count the outcomes of a batch, and list some that match."""
    files = _open(folder, batch_id)
    if files is None:
        return {"has_files": False, "kinds": [], "outcomes": [], "chosen": chosen, "next": None}
    status, reason = chosen["status"], chosen["reason"]
    outcome_filter = OutcomeFilter(
        Status(status) if status in set(Status) else None,
        chosen["handler"],
        Reason(reason) if reason in set(Reason) else None,
    )
    kinds = files.counts().items() if files.size <= _MOST else ()
    selected = OutcomeFiles(files.rounds, outcome_filter)
    rows = list(islice(selected.rows(), skip, skip + ROWS + 1))
    return {
        "has_files": True,
        "kinds": [
            {"handler": handler, "status": status, "reason": reason, "count": count}
            for (handler, status, reason), count in sorted(kinds, key=lambda each: tuple(map(str, each[0])))
        ],
        "outcomes": list(map(_row, rows[:ROWS])),
        "chosen": dict(chosen),
        "next": skip + ROWS if len(rows) > ROWS else None,
    }


def of_message(folders: Sequence[tuple[str, str]], message_id: str) -> Found:
    """Find all outcomes of a message in some batches, and draw its causes and outputs."""
    searched, rows, budget = [], list[Row](), _MOST
    graph: list[Found] = []
    for folder, batch_id in folders:
        files = _open(folder, batch_id)
        size = 0 if files is None else files.size
        searched.append({"batch_id": batch_id, "is_readable": files is not None and size <= budget})
        if files is not None and size <= budget:
            budget -= size
            found = list(islice(files.of_messages([message_id]), ROWS))
            rows += found
            if not graph:
                graph = _Graph(files, batch_id, message_id, found).nodes()
    return {"outcomes": list(map(_row, rows)), "graph": graph, "searched": searched}


class _Graph:
    """The messages around one in its batch, at most three levels each way. Outputs are handled in the next round."""

    def __init__(self, files: OutcomeFiles, batch_id: str, message_id: str, own: Sequence[Row]) -> None:
        self._files, self._batch_id = files, batch_id
        self._nodes: dict[str, Found] = {}
        self._add(message_id, 0, "")
        first = min((row["round"] for row in own), default=files.rounds[-1].number + 1)
        self._add_causes([message_id], first - 1, -1)
        self._add_outputs(own, 1)

    def nodes(self) -> list[Found]:
        """Return the messages, or nothing if none is before or after."""
        return list(self._nodes.values()) if len(self._nodes) > 1 else []

    def _add(self, id_: str, level: int, type_: str, status: str = "", cause: str | None = None) -> None:
        new = {"id": id_, "type": "", "status": "", "level": level, "causes": [], "batch": self._batch_id}
        node = self._nodes.setdefault(id_, new)
        node["type"], node["status"] = node["type"] or type_, node["status"] or status
        if cause is not None and cause not in node["causes"]:
            node["causes"].append(cause)

    def _add_causes(self, ids: Sequence[str], round_: int, level: int) -> None:
        rows = list(islice(self._files.between(0, round_).with_outputs(ids), _BREADTH))
        for row in rows:
            self._add(row["message_id"], level, row["type"], row["status"])
            for output in row["outputs"]:
                if output["message_id"] in ids:
                    self._add(output["message_id"], level + 1, output["type"], cause=row["message_id"])
        if rows and level > -_DEPTH:
            above = min(row["round"] for row in rows) - 1
            self._add_causes([row["message_id"] for row in rows], above, level - 1)

    def _add_outputs(self, rows: Sequence[Row], level: int) -> None:
        outputs: dict[str, int] = {}
        for row in rows:
            self._add(row["message_id"], level - 1, row["type"], row["status"])
            for output in (row["outputs"] or ())[:_BREADTH]:
                self._add(output["message_id"], level, output["type"], cause=row["message_id"])
                outputs[output["message_id"]] = row["round"] + 1
        if outputs and level <= _DEPTH:
            rounds = self._files.between(min(outputs.values()), max(outputs.values()))
            self._add_outputs(list(islice(rounds.of_messages(list(outputs)[:_BREADTH]), _BREADTH)), level + 1)


def body_of(folder: str, batch_id: str, message_id: str) -> str:
    """Return the body of a message that is an output in the same batch, or an empty text."""
    files = _open(folder, batch_id)
    if files is not None and files.size <= _MOST:
        for row in files.with_outputs([message_id]):
            for output in row["outputs"]:
                if output["message_id"] == message_id:
                    return str(output["body"])
    return ""


def _row(row: Row) -> Found:
    return {**row, "outputs": row["outputs"] or []}
