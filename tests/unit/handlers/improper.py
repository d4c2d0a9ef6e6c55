"""Handlers that are not deterministic, each in a way of its own, which no guard can see."""

import time
from datetime import datetime
from typing import ClassVar

from handlers import App, Context, Handler, Message, State, handles


class Named(Message):
    town: str
    names: frozenset[str]
    at: datetime


class Answer(Message):
    text: str


class Town(State):
    text: str = ""
    count: int = 0


class Improper(Handler[Town]):
    """Publishes and stores what `text` and `count` return."""

    @handles(by="town")
    def named(self, state: Town, message: Named, context: Context) -> Town:
        text = self.text(message, context)
        if text:
            context.publish(Answer(text=text))
        count = self.count(message, context)
        return state.model_copy(update={"count": count}) if count else state

    def text(self, message: Named, context: Context) -> str:
        return ""

    def count(self, message: Named, context: Context) -> int:
        return 0


class Hashes(Improper):
    def count(self, message: Named, context: Context) -> int:
        return hash(message.town) % 1000


class Orders(Improper):
    def text(self, message: Named, context: Context) -> str:
        return f"{','.join(message.names)}."


class Localises(Improper):
    def count(self, message: Named, context: Context) -> int:
        return int(message.at.timestamp())  # a time without zone is local time


class RemembersMessages(Improper):
    handled: ClassVar[set[str]] = set()

    def text(self, message: Named, context: Context) -> str:
        is_first = context.message_id not in self.handled
        self.handled.add(context.message_id)
        return "for the first time" if is_first else ""


class Identifies(Improper):
    def text(self, message: Named, context: Context) -> str:
        return repr(object())


class RaisesSometimes(Improper):
    def text(self, message: Named, context: Context) -> str:
        if hash(message.town) % 2:
            raise ValueError(message.town)
        return ""


class Looks(Handler[Town]):
    @handles(by="town")
    def named(self, state: Town, message: Named, context: Context) -> Town:
        return state.model_copy(update={"count": time.time_ns()})


class Captures(Improper):
    """Looks at the clock as it may: the captured value is recorded."""

    def count(self, message: Named, context: Context) -> int:
        captured: int = context.capture("ns", time.time_ns)
        return captured


class Fails(Improper):
    """Always fails, and always with the same error."""

    def count(self, message: Named, context: Context) -> int:
        raise ValueError(repr(object()))


captures, fails = App(Captures), App(Fails)
