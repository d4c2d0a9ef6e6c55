"""The errors of the linter.

HandlersError
└── SourceError   source cannot be found, read or parsed; one sentence says which and where
"""

from __future__ import annotations

from handlers.errors import HandlersError


class SourceError(HandlersError):
    """Raised when source cannot be found, read or parsed."""
