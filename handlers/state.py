"""States: frozen models, one for each business object; every version is stored."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict

from handlers.codec import JSON

Upcaster = Callable[[dict[str, Any]], dict[str, Any]]


class State(BaseModel):
    """Base of states. All fields have defaults, which are the initial state of a business object.

    A changed shape gets a new schema version, and an upcaster for each older version, which turns its stored fields
    into those of the next version: `class Account(State, version=2, upcasters={1: add_currency})`.
    """

    model_config = ConfigDict(frozen=True, **JSON)

    __schema_version__: ClassVar[int] = 1
    __upcasters__: ClassVar[Mapping[int, Upcaster]] = {}

    def __init_subclass__(
        cls,
        version: int = 1,
        upcasters: Mapping[int, Upcaster] | None = None,
        **kwargs: Any,  # noqa: ANN401 - pydantic's
    ) -> None:
        """Accept version and upcasters, which are used below, once pydantic has built the class."""
        super().__init_subclass__(**kwargs)

    @classmethod
    def __pydantic_init_subclass__(
        cls,
        version: int = 1,
        upcasters: Mapping[int, Upcaster] | None = None,
        **kwargs: Any,  # noqa: ANN401 - pydantic's
    ) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        cls.__schema_version__ = version
        cls.__upcasters__ = dict(upcasters or {})
