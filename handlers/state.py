"""States: frozen models, one for each business object, of which every version is kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict

from handlers.codec import JSON

Upcaster = Callable[[dict[str, Any]], dict[str, Any]]


class State(BaseModel):
    """What a business object is at one moment. All fields have defaults: they are its first version.

    A changed shape gets a new schema version, and an upcaster for each older one that turns the stored
    fields into those of the next: `class Account(State, version=2, upcasters={1: add_currency})`.
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
        """Let `type` accept version and upcasters; they are taken up below, once pydantic has made the class."""
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
