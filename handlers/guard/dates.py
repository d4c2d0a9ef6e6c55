"""Proxies of `datetime` and `date` in a handler's modules, which guard the clock and the local time zone.

They have no instances: they construct those of Python's own classes, or of the classes that a test replaced them by,
and compare equal to Python's own.
"""

from __future__ import annotations

import datetime as dt
from typing import Any

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema

from handlers.guard.nondeterministic import CLOCK
from handlers.guard.violation import check

_holds = vars(dt)


def _pythons_own(held: type) -> Any:  # noqa: ANN401 - a class
    """Return Python's own class, also when a test has replaced it."""
    return next(base for base in held.__mro__ if base.__module__ == "datetime")


_date, _datetime = _pythons_own(dt.date), _pythons_own(dt.datetime)


class _Proxy(type):
    """The metaclass of a proxy, which behaves as the class `original`."""

    original: type

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, cls.original)

    def __subclasscheck__(cls, other: type) -> bool:
        return issubclass(other, cls.original)

    def __eq__(cls, other: object) -> bool:
        return other is cls or other is cls.original

    def __hash__(cls) -> int:
        return hash(cls.original)

    def live(cls) -> Any:  # noqa: ANN401 - a class like the original
        """Return the class that the module holds now: a test may have put one with a frozen clock there."""
        return _holds[cls.original.__name__]


class GuardedDate(_date, metaclass=_Proxy):  # type: ignore[misc, valid-type]
    """The proxy of `datetime.date`."""

    original = _date

    def __new__(cls, *given: Any, **named: Any) -> Any:  # noqa: ANN401 - Python's own, of no subclass
        """Construct one of Python's own."""
        return cls.live()(*given, **named)

    @classmethod
    def __get_pydantic_core_schema__(cls, _: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return handler(cls.original)

    @classmethod
    def today(cls) -> Any:  # noqa: ANN401 - Python's own
        """Guard the clock."""
        check("date.today()", CLOCK)
        return cls.live().today()

    @classmethod
    def fromtimestamp(cls, timestamp: float, /) -> Any:  # noqa: ANN401 - Python's own
        """Guard the local time zone."""
        check("date.fromtimestamp()", "use datetime.fromtimestamp() with a time zone, such as datetime.UTC")
        return cls.live().fromtimestamp(timestamp)


class GuardedDatetime(_datetime, metaclass=_Proxy):  # type: ignore[misc, valid-type]
    """The proxy of `datetime.datetime`."""

    original = _datetime

    def __new__(cls, *given: Any, **named: Any) -> Any:  # noqa: ANN401 - Python's own, of no subclass
        """Construct one of Python's own."""
        return cls.live()(*given, **named)

    @classmethod
    def __get_pydantic_core_schema__(cls, _: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return handler(cls.original)

    @classmethod
    def now(cls, tz: dt.tzinfo | None = None) -> Any:  # noqa: ANN401 - Python's own
        """Guard the clock."""
        check("datetime.now()", CLOCK)
        return cls.live().now(tz)

    @classmethod
    def utcnow(cls) -> Any:  # noqa: ANN401 - Python's own
        """Guard the clock."""
        check("datetime.utcnow()", CLOCK)
        return cls.live().utcnow()

    @classmethod
    def today(cls) -> Any:  # noqa: ANN401 - Python's own
        """Guard the clock."""
        check("datetime.today()", CLOCK)
        return cls.live().today()

    @classmethod
    def fromtimestamp(cls, timestamp: float, tz: dt.tzinfo | None = None) -> Any:  # noqa: ANN401 - Python's own
        """Guard the local time zone."""
        if tz is None:
            check("datetime.fromtimestamp()", "pass a time zone, such as datetime.UTC")
        return cls.live().fromtimestamp(timestamp, tz)
