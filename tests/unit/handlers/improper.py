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


class Hashes(Handler[Town]):
    """Uses the hash of a text."""

    @handles(by="town")
    def named(self, state: Town, message: Named, context: Context) -> Town:
        return state.model_copy(update={"count": hash(message.town) % 1000})


class Orders(Handler[Town]):
    """Relies on the order of a set."""

    @handles(by="town")
    def named(self, state: Town, message: Named, context: Context) -> Town:
        context.publish(Answer(text=",".join(message.names)))
        return state


class Localises(Handler[Town]):
    """Takes a time without zone for local time."""

    @handles(by="town")
    def named(self, state: Town, message: Named, context: Context) -> Town:
        return state.model_copy(update={"text": str(message.at.timestamp())})


class RemembersMessages(Handler[Town]):
    """Keeps the ids of messages in its class, to handle none twice."""

    handled: ClassVar[set[str]] = set()

    @handles(by="town")
    def named(self, state: Town, message: Named, context: Context) -> Town:
        if context.message_id not in self.handled:
            self.handled.add(context.message_id)
            context.publish(Answer(text="for the first time"))
        return state


class Identifies(Handler[Town]):
    """Publishes the address of an object, by `repr`."""

    @handles(by="town")
    def named(self, state: Town, message: Named, context: Context) -> Town:
        context.publish(Answer(text=repr(object())))
        return state


class RaisesSometimes(Handler[Town]):
    """Fails for some of the hashes."""

    @handles(by="town")
    def named(self, state: Town, message: Named, context: Context) -> Town:
        if hash(message.town) % 2:
            raise ValueError(message.town)
        return state


class Looks(Handler[Town]):
    """Looks at the clock."""

    @handles(by="town")
    def named(self, state: Town, message: Named, context: Context) -> Town:
        return state.model_copy(update={"count": time.time_ns()})


class Captures(Handler[Town]):
    """Looks at the clock as it may: what it captures is another thing in each process, and recorded."""

    @handles(by="town")
    def named(self, state: Town, message: Named, context: Context) -> Town:
        return state.model_copy(update={"count": context.capture("ns", time.time_ns)})


class Fails(Handler[Town]):
    """Always fails, and always alike."""

    @handles(by="town")
    def named(self, state: Town, message: Named, context: Context) -> Town:
        raise ValueError(repr(object()))


captures, fails = App(Captures), App(Fails)
