"""The codec of a state, which also upcasts states stored in earlier schema versions."""

from __future__ import annotations

import json
from typing import Any

from handlers.codec import Codec
from handlers.errors import AppError, CodecError
from handlers.state import State, Upcaster


class StateCodec(Codec[State]):
    """Encode states in the current schema version, and upcast those stored in earlier ones."""

    __slots__ = ("_upcasters", "version")

    def __init__(self, state_type: type[State]) -> None:
        super().__init__(state_type)
        self.version = state_type.__schema_version__
        self._upcasters = dict(state_type.__upcasters__)
        _check_upcasters(state_type.__name__, self.version, self._upcasters)

    def upcast(self, data: bytes, version: int) -> bytes:
        """Return the bytes of a stored state in the current schema version, unchanged when it has that version.

        Raises `CodecError` when the stored version is newer, or an upcaster is missing or fails.
        """
        if version == self.version:
            return data
        name = self.model_type.__name__
        if version > self.version:
            raise CodecError(
                f"{name} was stored in schema version {version}; this code knows versions up to {self.version}: deploy "
                f"newer code."
            )
        fields: Any = json.loads(data)
        for step in range(version, self.version):
            if step not in self._upcasters:
                raise CodecError(
                    f"{name} was stored in schema version {version}, and there is no upcaster from version {step}: "
                    f"bring it back."
                )
            try:
                fields = self._upcasters[step](fields)
            except Exception as error:
                raise CodecError(
                    f"The upcaster of {name} from version {step} failed: {type(error).__name__}: {error}"
                ) from error
        return self.encode(self.reread(json.dumps(fields).encode()))


def _check_upcasters(name: str, version: int, upcasters: dict[int, Upcaster]) -> None:
    if version < 1:
        raise AppError(f"{name} has schema version {version}: use an int from 1.")
    oldest = min(upcasters, default=version)
    missing = sorted(set(range(oldest, version)) ^ set(upcasters))
    if missing or (version > 1 and not upcasters):
        steps = ", ".join(map(str, missing)) or str(version - 1)
        raise AppError(
            f"{name} has schema version {version}: add the missing upcasters, or remove those too many ({steps})."
        )
