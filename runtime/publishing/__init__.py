"""Send the outputs of a batch to a target, with the strongest guarantee that the target supports."""

from runtime.errors import PermanentError, SendError, TransientError
from runtime.publishing.last_hop import OutgoingMessage
from runtime.publishing.publisher import DeliverySettings

__all__ = ["DeliverySettings", "OutgoingMessage", "PermanentError", "SendError", "TransientError"]
