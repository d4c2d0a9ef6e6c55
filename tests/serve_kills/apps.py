"""The app of killed consumers: accounts that note entries in order, with a draw that each replay must repeat."""

from __future__ import annotations

import faulthandler
import signal

from handlers import App, Context, Handler, Message, State, handles

faulthandler.register(signal.SIGUSR1)  # a campaign asks so what a consumer does that does not end


class Add(Message):
    """The entry with this number of an account."""

    account: str
    number: int


class Added(Message):
    account: str
    number: int
    count: int
    drawn: int


class Account(State):
    count: int = 0
    last: int = 0


class Accounts(Handler[Account]):
    @handles(by="account")
    def add(self, state: Account, message: Add, context: Context) -> Account:
        count = state.count + 1
        drawn = context.random.randrange(1_000_000)
        context.publish(Added(account=message.account, number=message.number, count=count, drawn=drawn))
        return state.model_copy(update={"count": count, "last": message.number})


app = App(Accounts)
