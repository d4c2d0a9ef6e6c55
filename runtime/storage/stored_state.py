"""Reading a stored state back into the model that a handler gets."""

from __future__ import annotations

from handlers import CodecError, State
from handlers.state_codec import StateCodec
from runtime.storage.readable_states import changes, decode

_SHOWN = 5


def read_state(codec: StateCodec, encoded: bytes) -> State:
    """Return a stored state in today's schema version. Raises `CodecError` when it does not survive a round trip."""
    state = codec.reread(encoded)
    again = codec.encode(state)
    if again != encoded:
        name = codec.model_type.__name__
        problem = (
            f"What is stored of {name} comes back as something else ({_fields(encoded, again)}): another shape needs "
            f"another schema version, class {name}(State, version={codec.version + 1}, upcasters=...)."
        )
        raise CodecError(problem)
    return state


def _fields(stored: bytes, again: bytes) -> str:
    """Return the names of fields that are not the same, of very many the first ones."""
    names = [change.field for change in changes(decode(stored), decode(again))]
    return ", ".join([*names[:_SHOWN], *(["..."] if len(names) > _SHOWN else [])])
