"""Publishing: the outputs of a batch sent to a target outside, as often as the target can promise."""

from runtime.errors import PermanentError, SendError, TransientError
from runtime.publishing.last_hop import DeliverySettings, OutgoingMessage

__all__ = ["DeliverySettings", "OutgoingMessage", "PermanentError", "SendError", "TransientError"]
