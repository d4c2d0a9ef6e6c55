"""The corpora of the fuzzers: for each target a folder of inputs, named by their digest, that were worth keeping."""

from hashlib import sha256
from pathlib import Path

from tests.faults.fuzz.targets import TARGETS

FOLDER = Path(__file__).parent / "corpus"


def inputs(name: str) -> list[bytes]:
    """Return the inputs of a target: its seeds, and what was kept."""
    kept = sorted((FOLDER / name).glob("*"))
    return [*TARGETS[name].seeds, *(path.read_bytes() for path in kept)]


def keep(name: str, data: bytes) -> Path:
    path = FOLDER / name / sha256(data).hexdigest()[:16]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path
