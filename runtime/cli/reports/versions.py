"""State versions as JSON: in a few words for a list, or with all that is recorded."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from runtime.cli.reports.tables import moment_text
from runtime.storage.readable_captures import readable
from runtime.storage.readable_states import changes, decode
from runtime.storage.version import Version


def describe_version(stored: Version, *, whole: bool, diff: bool) -> dict[str, Any]:
    """Return a version for JSON: `whole` with all that is recorded, with `diff` what it changed."""
    version = stored.record
    before, after = decode(stored.before), decode(stored.after)
    described: dict[str, Any] = {
        "version": stored.number,
        "message_id": stored.message_id,
        "type": version.type,
        "now": moment_text(version.now),
        "enqueued_at": moment_text(version.enqueued_at),
        "batch": stored.batch,
        "changed": version.after is not None,
    }
    if whole:
        described |= {
            "written_at": moment_text(stored.written_at),
            "headers": dict(version.headers or {}),
            "captured": {name: readable(value) for name, value in (version.captured or {}).items()},
            "revision": version.revision,
            "schema": stored.schema,
            "fingerprint": version.fingerprint.hex(),
            "outputs_digest": version.outputs_digest.hex(),
            "state_digest": version.state_digest.hex(),
            "before": before,
        }
    described["after" if whole else "state"] = after
    if diff:
        described["changes"] = [asdict(change) for change in changes(before, after)]
    return described
