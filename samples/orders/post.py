"""Letters to customers, sent at most once by `consistent publish --to samples.orders.post:send`.

A real sender would call a mail service, and raise `TransientError` when the service is busy.
"""

from pathlib import Path

from runtime.publishing import OutgoingMessage, PermanentError

LETTERS = Path("letters.txt")


def send(message: OutgoingMessage) -> None:
    """Write a letter. Raises `PermanentError` for a customer without an address."""
    if message.customer == "Tony":
        raise PermanentError("Tony has moved to an unknown address.")
    with LETTERS.open("a") as letters:
        letters.write(f"Dear {message.customer}: {message.body['text']}\n")
