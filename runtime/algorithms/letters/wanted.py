"""What a redrive is asked for: a selection of letters, and messages that were mended."""

from __future__ import annotations

from typing import NamedTuple

from runtime.algorithms.letters.lines import Edits
from runtime.algorithms.letters.selection import FoundLetter, Selection


class Wanted(NamedTuple):
    """Which letters are redriven, and messages that were mended for some of them.

    With `only_edited`, only those of the selection for which there is an edit.
    """

    selection: Selection
    edits: Edits
    only_edited: bool = False

    def takes(self, found: FoundLetter) -> bool:
        """Say whether a letter that is selected is redriven."""
        return not self.only_edited or self.edits.has(found)
