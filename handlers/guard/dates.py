"""What stands for `datetime` and `date` in a handler's modules: the same but for the clock.

Nothing is ever an instance of these classes: they make instances of Python's own, or of what a test put in
their place, and equal Python's own where classes are compared.
"""

from __future__ import annotations

import datetime as dt
from typing import Any

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema

from handlers.guard.entrances import CLOCK
from handlers.guard.violation import check

_holds = vars(dt)


def _pythons_own(held: type) -> Any:  # noqa: ANN401 - a class
    """Return Python's own class, also when a test has put one of its own in its place."""
    return next(base for base in held.__mro__ if base.__module__ == "datetime")


_date, _datetime = _pythons_own(dt.date), _pythons_own(dt.datetime)


class _StandIn(type):
    """The class of a class that passes for another, `stands_for`."""

    stands_for: type

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, cls.stands_for)

    def __subclasscheck__(cls, other: type) -> bool:
        return issubclass(other, cls.stands_for)

    def __eq__(cls, other: object) -> bool:
        return other is cls or other is cls.stands_for

    def __hash__(cls) -> int:
        return hash(cls.stands_for)

    def live(cls) -> Any:  # noqa: ANN401 - a class like the one it stands for
        """Return the class that the module holds now: a test may have put one with a frozen clock there."""
        return _holds[cls.stands_for.__name__]


class GuardedDate(_date, metaclass=_StandIn):  # type: ignore[misc, valid-type]
    """`datetime.date` without the clock."""

    stands_for = _date

    def __new__(cls, *given: Any, **named: Any) -> Any:  # noqa: ANN401 - Python's own, of no subclass
        """Make one of Python's own."""
        return cls.live()(*given, **named)

    @classmethod
    def __get_pydantic_core_schema__(cls, _: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return handler(cls.stands_for)

    @classmethod
    def today(cls) -> Any:  # noqa: ANN401 - Python's own
        """Refuse the date of today."""
        check("date.today()", CLOCK)
        return cls.live().today()

    @classmethod
    def fromtimestamp(cls, timestamp: float, /) -> Any:  # noqa: ANN401 - Python's own
        """Refuse the local time zone."""
        check("date.fromtimestamp()", "the local time zone is another elsewhere")
        return cls.live().fromtimestamp(timestamp)


class GuardedDatetime(_datetime, metaclass=_StandIn):  # type: ignore[misc, valid-type]
    """`datetime.datetime` without the clock."""

    stands_for = _datetime

    def __new__(cls, *given: Any, **named: Any) -> Any:  # noqa: ANN401 - Python's own, of no subclass
        """Make one of Python's own."""
        return cls.live()(*given, **named)

    @classmethod
    def __get_pydantic_core_schema__(cls, _: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return handler(cls.stands_for)

    @classmethod
    def now(cls, tz: dt.tzinfo | None = None) -> Any:  # noqa: ANN401 - Python's own
        """Refuse the clock."""
        check("datetime.now()", CLOCK)
        return cls.live().now(tz)

    @classmethod
    def utcnow(cls) -> Any:  # noqa: ANN401 - Python's own
        """Refuse the clock."""
        check("datetime.utcnow()", CLOCK)
        return cls.live().utcnow()

    @classmethod
    def today(cls) -> Any:  # noqa: ANN401 - Python's own
        """Refuse the clock."""
        check("datetime.today()", CLOCK)
        return cls.live().today()

    @classmethod
    def fromtimestamp(cls, timestamp: float, tz: dt.tzinfo | None = None) -> Any:  # noqa: ANN401 - Python's own
        """Refuse the local time zone."""
        if tz is None:
            check("datetime.fromtimestamp()", "give it a time zone, such as datetime.UTC")
        return cls.live().fromtimestamp(timestamp, tz)
