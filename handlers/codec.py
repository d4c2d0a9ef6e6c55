"""The codec of messages and states: models to JSON bytes and back, the same bytes on every machine.

Everything that a handler sees has been through the codec, on the first run too, so that a replay from stored
bytes cannot differ from it. "Unchanged" means: the same bytes.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import PydanticSerializationError, to_json

from handlers.errors import CodecError
from handlers.fields import holds_frozenset

JSON = ConfigDict(
    extra="ignore",
    ser_json_bytes="base64",
    val_json_bytes="base64",
    ser_json_inf_nan="constants",
    hide_input_in_errors=False,
)
"""What is common to the models of messages and states, which add `frozen=True` in their own bodies.

There pydantic's mypy plugin reads it. As an argument of the class, type checkers without the plugin would want it of
every subclass too.
"""

M = TypeVar("M", bound=BaseModel)


class Codec(Generic[M]):
    """Encode and decode models of one type. Costs about a microsecond a call for a small model."""

    __slots__ = ("_fields", "_serialize", "_sorted", "_validate", "model_type")

    def __init__(self, model_type: type[M]) -> None:
        self.model_type = model_type
        self._fields = len(model_type.model_fields)
        self._sorted = holds_frozenset(model_type)
        self._validate = model_type.__pydantic_validator__.validate_json
        self._serialize = model_type.__pydantic_serializer__.to_json

    def encode(self, model: M) -> bytes:
        """Return the JSON of a model: fields in their order, sets sorted by the bytes of their members.

        Raises `CodecError` when a field holds what its type cannot, or there is a field that the model does
        not have: `model_copy(update=...)` checks neither.
        """
        if type(model) is not self.model_type:
            message = f"{self.model_type.__name__} is expected, not {type(model).__name__}."
            raise CodecError(message)
        if len(model.__dict__) != self._fields:
            raise CodecError(self._unknown_fields(model))
        try:
            if self._sorted:
                return to_json(_sorted(model), bytes_mode="base64", inf_nan_mode="constants")
            return self._serialize(model, by_alias=True, warnings=False)
        except KeyError as error:
            message = f"A model in {self.model_type.__name__} has no field {error.args[0]}."
            raise CodecError(message) from error
        except (PydanticSerializationError, TypeError, ValueError) as error:
            message = f"{self.model_type.__name__} cannot be encoded: {error}"
            raise CodecError(message) from error

    def decode(self, data: bytes | str) -> M:
        """Return the model that the JSON holds. Raises pydantic's `ValidationError`."""
        decoded: M = self._validate(data)
        return decoded

    def reread(self, data: bytes) -> M:
        """Decode what `encode` gave. Raises `CodecError` when it does not come back."""
        try:
            return self.decode(data)
        except ValidationError as error:
            message = f"{self.model_type.__name__} holds what its type does not allow: {first_problem(error)}"
            raise CodecError(message) from error

    def settled(self, encoded: bytes) -> tuple[M, bytes]:
        """Return what `encode` gave as it comes back from storage, and the bytes of that, which are stored.

        A value that was not validated may be written in another form than its type is: 1.0 in a field of
        type int, 0 in a Decimal. Encoded again after it came back, it would look like a change. Raises
        `CodecError` when it does not come back, or comes back as something else each time.
        """
        settled = self.reread(encoded)
        again = self.encode(settled)
        if again != encoded and self.encode(self.reread(again)) != again:
            message = f"{self.model_type.__name__} comes back as something else each time that it is read."
            raise CodecError(message)
        return settled, again

    def _unknown_fields(self, model: M) -> str:
        known = set(self.model_type.model_fields)
        strange = sorted(set(model.__dict__) - known)
        missing = sorted(known - set(model.__dict__))
        what = f"has no field {', '.join(strange)}" if strange else f"lacks {', '.join(missing)}"
        return f"{self.model_type.__name__} {what}."


def first_problem(error: ValidationError) -> str:
    """Say in one line what a `ValidationError` found first, without the documentation link."""
    problem = error.errors(include_url=False, include_context=False, include_input=False)[0]
    where = ".".join(str(part) for part in problem["loc"])
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    return f"{where}: {problem['msg']}{more}" if where else f"{problem['msg']}{more}"


def _sorted(value: Any) -> Any:  # noqa: ANN401 - any field value
    """Give a value in which models are dicts and sets are lists sorted by the JSON of their members."""
    if isinstance(value, BaseModel):
        fields = type(value).model_fields
        return {
            fields[name].serialization_alias or name: _sorted(item) for name, item in value.__dict__.items()
        }
    if isinstance(value, frozenset | set):
        return sorted((_sorted(item) for item in value), key=_json)
    if isinstance(value, tuple | list):
        return [_sorted(item) for item in value]
    return value


def _json(value: Any) -> bytes:  # noqa: ANN401 - any field value
    return to_json(value, bytes_mode="base64", inf_nan_mode="constants")
