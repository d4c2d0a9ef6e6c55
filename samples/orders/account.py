"""An account: pays for orders as long as there is enough in it."""

from handlers import Context, Handler, handles
from samples.orders.messages import PaymentAsked, PaymentMade, PaymentRefused, TopUp
from samples.orders.states import AccountData


class Account(Handler[AccountData]):
    """The account of one customer."""

    @handles(by="customer")
    def top_up(self, state: AccountData, message: TopUp, context: Context) -> AccountData:
        """Add to it."""
        return AccountData(cents=state.cents + message.cents)

    @handles(by="customer")
    def pay(self, state: AccountData, message: PaymentAsked, context: Context) -> AccountData:
        """Pay, or refuse to."""
        if message.cents > state.cents:
            context.publish(PaymentRefused(order_id=message.order_id))
            return state
        context.publish(PaymentMade(order_id=message.order_id))
        return AccountData(cents=state.cents - message.cents)
