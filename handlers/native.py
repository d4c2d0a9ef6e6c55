"""Parts in C: what runs for each message is there twice, in Python, which says what it does, and in C.

The part in C is taken where it was built. Where it was not, as there is no compiler, and with
`CONSISTENT_MESSAGING_PURE_PYTHON=1` in the environment, Python does the same, only slower.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

PURE_PYTHON = "CONSISTENT_MESSAGING_PURE_PYTHON"


def find_native(name: str) -> Any:  # noqa: ANN401 - a module, of which the caller knows what is in it
    """Return the module in C of this name, None where it was not built or is not wanted."""
    if os.environ.get(PURE_PYTHON, "0") not in {"", "0"}:
        return None
    try:
        return import_module(name)
    except ImportError:
        return None
