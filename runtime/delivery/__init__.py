"""Delivery of outputs to those who take part in no transaction: push, mail, text messages, a partner's web service.

`deliver` sends messages with your function, each at most once or at least once by customer, and records what became of
each; `consistent deliver` does so with the outputs of batches.
"""

from runtime.algorithms.last_hop.settings import DeliverySettings
from runtime.delivery.begin import deliver
from runtime.delivery.gate import BreakerPolicy
from runtime.delivery.outgoing import OutgoingMessage, batch_messages
from runtime.delivery.policy import DeliveryPolicy
from runtime.delivery.records import DeliveryRecord, Result
from runtime.delivery.sending import Sender
from runtime.errors import DeliveryStoppedError, PermanentError, SendError, TransientError

__all__ = [
    "BreakerPolicy",
    "DeliveryPolicy",
    "DeliveryRecord",
    "DeliverySettings",
    "DeliveryStoppedError",
    "OutgoingMessage",
    "PermanentError",
    "Result",
    "SendError",
    "Sender",
    "TransientError",
    "batch_messages",
    "deliver",
]
