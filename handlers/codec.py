"""The codec of messages and states: encodes models as JSON, to the same bytes on every machine.

Every state and message that a handler gets was decoded from bytes, also the first time, so that a replay from stored
bytes gets the same. Two states are equal when their bytes are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails, PydanticSerializationError, to_json

from handlers.errors import CodecError
from handlers.fields import holds_frozenset
from handlers.plain import find_plain

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

_SHOWN = 20

M = TypeVar("M", bound=BaseModel)


class Codec(Generic[M]):
    """Encode and decode models of one type. A call costs about a microsecond for a small model.

    `decode` returns the model for its JSON, and raises pydantic's `ValidationError`. `plain` tells which models need no
    second look, None when the type is not plain.
    """

    __slots__ = ("_fields", "_sorted", "decode", "model_type", "plain", "serialize")

    def __init__(self, model_type: type[M]) -> None:
        self.model_type = model_type
        self._fields = len(model_type.model_fields)
        self._sorted = holds_frozenset(model_type)
        self.plain = find_plain(model_type)
        self.decode: Callable[[bytes | str], M] = model_type.__pydantic_validator__.validate_json
        self.serialize = model_type.__pydantic_serializer__.to_json

    def encode(self, model: M) -> bytes:
        """Return the JSON of a model: fields in declared order, sets sorted by the bytes of their members.

        Raises `CodecError` for a value that its field's type does not allow, and for unknown or missing fields:
        `model_copy(update=...)` checks neither.
        """
        if type(model) is not self.model_type:
            raise CodecError(f"Expected {self.model_type.__name__}, got {type(model).__name__}.")
        if len(model.__dict__) != self._fields:
            raise CodecError(self._unknown_fields(model))
        try:
            if self._sorted:
                return to_json(_sorted(model), bytes_mode="base64", inf_nan_mode="constants")
            return self.serialize(model, by_alias=True, warnings=False)
        except KeyError as error:
            raise CodecError(
                f"A model in {self.model_type.__name__} has no field {error.args[0]}."
            ) from error
        except (PydanticSerializationError, TypeError, ValueError) as error:
            raise CodecError(f"{self._place_of_failure(model)} cannot be encoded: {error}") from error

    def reread(self, data: bytes) -> M:
        """Decode what `encode` returned. Raises `CodecError` when it is not valid."""
        try:
            return self.decode(data)
        except ValidationError as error:
            raise CodecError(
                f"{self.model_type.__name__} holds a value that its type does not allow: {all_problems(error)}"
            ) from error

    def canonical(self, encoded: bytes) -> tuple[M, bytes]:
        """Return what `encode` returned in canonical form: the model as storage returns it, and the bytes to store.

        A value that was not validated may be encoded in another form than its type's: 1.0 in a field of type int, 0
        in a Decimal. Decoded and encoded once more it would look changed. Raises `CodecError` when the bytes cannot be
        decoded, or change with each decoding.
        """
        model = self.reread(encoded)
        again = self.encode(model)
        if again != encoded and self.encode(self.reread(again)) != again:
            raise CodecError(
                f"{self.model_type.__name__} changes with every encoding and decoding: check its validators."
            )
        return model, again

    def _place_of_failure(self, model: M) -> str:
        """Return the first field that cannot be encoded, with the name of the model."""
        name = self.model_type.__name__
        for field in self.model_type.model_fields:
            try:
                to_json(_sorted(getattr(model, field)), bytes_mode="base64", inf_nan_mode="constants")
            except (PydanticSerializationError, TypeError, ValueError):
                return f"{name}.{field}"
        return name

    def _unknown_fields(self, model: M) -> str:
        known = set(self.model_type.model_fields)
        strange = sorted(set(model.__dict__) - known)
        missing = sorted(known - set(model.__dict__))
        what = f"has no field {', '.join(strange)}" if strange else f"lacks {', '.join(missing)}"
        return f"{self.model_type.__name__} {what}."


def all_problems(error: ValidationError) -> str:
    """Return the problems of a `ValidationError` on one line, without links; of very many the first ones."""
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    lines = [_line(problem) for problem in problems[:_SHOWN]]
    more = len(problems) - len(lines)
    return "; ".join([*lines, f"and {more} more"] if more else lines)


def _line(problem: ErrorDetails) -> str:
    where = ".".join(str(part) for part in problem["loc"])
    return f"{where}: {problem['msg']}" if where else problem["msg"]


def _sorted(value: Any) -> Any:  # noqa: ANN401 - any field value
    """Return a value with models as dicts, and sets as lists sorted by the JSON of their members."""
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
