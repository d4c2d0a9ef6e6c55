"""A game on the shooting range, and all that was published in it."""

from collections import Counter
from uuid import UUID

from eventstore import Table, drive
from runtime import Envelope, Outcome, Output, Processor
from runtime.versions.stream import versions
from samples.shooting_range import app
from tests.unit.runtime.diary import delivery
from tests.unit.runtime.tables import memory_table

GAME = UUID("7d444840-9dc0-11d1-b245-5ffdce74fad2")


class Game:
    """A table, and all that was published on it."""

    def __init__(self) -> None:
        self.table: Table = memory_table()
        self.published: list[Output] = []
        self._processor = Processor(app, self.table, self._publish)

    def deliver(self, *messages: Envelope) -> list[Outcome]:
        return [outcome for message in messages for outcome in drive(self._processor.process(message))]

    async def _publish(self, output: Output) -> None:
        self.published.append(output)

    def shots(self) -> Counter[str]:
        """Count the different outputs by type."""
        return Counter({output.message_id: output.type for output in self.published}.values())

    def states(self) -> list[str]:
        """Return the state after each version of the shooting range."""
        found = drive(versions(self.table, "ShootingRange", str(GAME)))
        return [version.after.decode() for version in found or ()]


def start(number: int, position: int) -> Envelope:
    return delivery(f"start-{number}", "StartNewRound", {"game_id": str(GAME), "position": position})


def fire(number: int, position: int) -> Envelope:
    return delivery(f"fire-{number}", "FireAt", {"game_id": str(GAME), "position": position})
