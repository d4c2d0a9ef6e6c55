"""What an outbox entry knows of tokens: the one that its message came with, and those of its outputs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from runtime.algorithms.outbox.tokens import Token, with_token
from runtime.messages.outcome import Output


class EntryTokens(NamedTuple):
    """The tokens of one entry.

    `incoming` is the one that the message came with; `recipients` are the handlers of each output. `attempts` are the
    ids under which tokens of the outputs may have been created, `committed` is the one that counts.
    """

    incoming: Token
    recipients: tuple[tuple[str, ...], ...]
    attempts: tuple[str, ...] = ()
    committed: str | None = None

    @classmethod
    def read(
        cls,
        incoming: Iterable[str],
        recipients: Iterable[Iterable[str]],
        attempts: Iterable[str],
        committed: str | None,
    ) -> EntryTokens:
        """Return what was stored, where tuples became lists."""
        return cls(Token(*incoming), tuple(map(tuple, recipients)), tuple(attempts), committed)

    @property
    def are_decided(self) -> bool:
        """Whether it is decided which tokens the outputs carry, or they need none."""
        return self.committed is not None or not any(self.recipients)

    def registered(self, attempt: str) -> EntryTokens:
        """Return them with one more attempt."""
        return self._replace(attempts=(*self.attempts, attempt)) if any(self.recipients) else self

    def committing(self, attempt: str) -> EntryTokens:
        """Return them with the attempt that counts."""
        return self._replace(committed=attempt)

    def of_attempt(self, attempt: str) -> list[Token]:
        """Return the tokens of all outputs, under the ids of an attempt."""
        return [
            Token(self.incoming.chain, _id(attempt, index), handler)
            for index, handlers in enumerate(self.recipients)
            for handler in handlers
        ]

    def garbage(self) -> list[Token]:
        """Return the tokens that attempts may have created and that do not count."""
        lost = [attempt for attempt in self.attempts if attempt != self.committed]
        return [token for attempt in lost for token in self.of_attempt(attempt)]

    def put_into(self, outputs: Sequence[Output]) -> tuple[Output, ...]:
        """Return outputs that carry the names of their tokens."""
        return tuple(
            output._replace(headers=with_token(output.headers, self._name(index)))
            if self.recipients[index]
            else output
            for index, output in enumerate(outputs)
        )

    def _name(self, index: int) -> str:
        return Token(self.incoming.chain, _id(self.committed or "", index), "").name


def _id(attempt: str, index: int) -> str:
    return f"{attempt}-{index}"
