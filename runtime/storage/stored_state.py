"""Reading a stored state back into the model that a handler gets."""

from __future__ import annotations

from handlers import CodecError, State
from handlers.state_codec import StateCodec


def read_state(codec: StateCodec, encoded: bytes) -> State:
    """Return a stored state in today's schema version. Raises `CodecError` when it does not survive a round trip."""
    state = codec.reread(encoded)
    if codec.encode(state) != encoded:
        name = codec.model_type.__name__
        problem = (
            f"What is stored of {name} comes back as something else: another shape needs another schema "
            f"version, class {name}(State, version={codec.version + 1}, upcasters=...)."
        )
        raise CodecError(problem)
    return state
