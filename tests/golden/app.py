"""The app of the golden scenarios: the shooting range, its leader board, and a referee with every use of a context."""

from datetime import datetime
from uuid import UUID

from handlers import App, Context, Handler, Message, State, handles
from samples.shooting_range.handlers import LeaderBoard, ShootingRange


class Ruled(Message):
    """What a referee has said: `length` makes the state large, `words` may be what a handler cannot take."""

    lane: str
    words: str
    length: int = 0


class Announced(Message):
    id: UUID
    words: str
    number: int
    headers: dict[str, str]


class Book(State):
    rulings: int = 0
    last: str = ""
    at: datetime | None = None
    wind: float = 0.0
    weight: str = ""


class Referee(Handler[Book]):
    """Draws, captures, reads the clock and the headers, and fails when told to."""

    @handles(by="lane")
    def rule(self, state: Book, message: Ruled, context: Context) -> Book:
        if message.words == "fail":
            raise ValueError(message.words)
        if message.words == "nothing":
            return state
        wind = context.capture("wind", lambda: 2.5)
        for number in range(2 if message.words == "twice" else 1):
            draw, headers = context.random.randrange(1000) + number, dict(context.headers)
            announced = Announced(id=context.new_guid(), words=message.words, number=draw, headers=headers)
            context.publish(announced)
        words, weight = message.words, "x" * message.length
        return Book(rulings=state.rulings + 1, last=words, at=context.now, wind=wind, weight=weight)


app = App(ShootingRange, LeaderBoard, Referee)
