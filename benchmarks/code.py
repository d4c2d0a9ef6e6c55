"""Which code was measured: a digest of all of it, taken before and after a run.

Contenders load their code when they start, one after another, and Spark's workers later still. Of code that is
changed meanwhile some contenders measure the old and some the new: such a run compares nothing.
"""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

_ROOT = Path(__file__).parent.parent
_PACKAGES = ("benchmarks", "eventstore", "handlers", "runtime", "samples")


def code_digest() -> str:
    """Return a digest of all modules that take part in a run."""
    digest = sha256()
    for package in _PACKAGES:
        for file in sorted((_ROOT / package).rglob("*.py")):
            digest.update(str(file.relative_to(_ROOT)).encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:16]
