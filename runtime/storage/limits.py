"""What a row and a transaction of a state stream hold at most, in one place."""

from __future__ import annotations

MAX_STATE_BYTES = 320 * 2**10
"""The largest encoded state: two of them and their context always fit the row of a run."""

MAX_HEAD_STATE_BYTES = 32 * 2**10
"""The largest encoded state that the header keeps; a larger one is read from the newest run."""
