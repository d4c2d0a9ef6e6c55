"""What mypy finds in a user's handlers, before anything runs; what it cannot find, `App` refuses (test_app)."""

import re
from pathlib import Path

from mypy import api

REPOSITORY = Path(__file__).parents[3]

GOOD = """
from typing import assert_type
from uuid import UUID

from handlers import App, Context, Handler, Message, State, handles
from handlers.testing import HandlerSpec, check_determinism

class Rang(Message):
    tower: UUID

class Heard(Message, name="heard"):
    by: str

class Data(State, version=2, upcasters={1: lambda fields: fields}):
    rings: int = 0

class Louder(Data):
    volume: int = 0

class Bell(Handler[Data], name="bell"):
    @handles(by="tower")
    def rang(self, state: Data, message: Rang, context: Context) -> Data:
        context.publish(Heard(by=self.who()), headers={"trace": "t"})
        return state.model_copy(update={"rings": context.random.randrange(9)})

    @handles(by="tower", revision=2)
    def rang_louder(self, state: Data, message: Rang, context: Context) -> Data:
        return self.rang(state, message, context)

    def who(self) -> str:
        return "bell"

app = App(Bell)
handled = HandlerSpec(Bell).given(Rang(tower=UUID(int=1)), state=Data(rings=1)).when(Rang(tower=UUID(int=1)))
handled.then(publishes=[Heard, Heard(by="bell")], state=Data(rings=2)).redelivered()
assert_type(handled.state, Data)
check_determinism(app, examples=3)
"""

WRONG = """
from handlers import App, Context, Handler, Message, State, handles
from handlers.testing import HandlerSpec

class Rang(Message):
    tower: str

class Data(State):
    rings: int = 0

class Other(State):
    rings: int = 0

class Stateless(Handler[Rang]):  # type-var
    pass

class Unnamed(Handler):  # type-arg
    pass

class Bell(Handler[Data]):
    @handles()  # call-arg
    def nowhere(self, state: Data, message: Rang, context: Context) -> Data:
        return state

    @handles(by=7)  # arg-type
    def numbered(self, state: Data, message: Rang, context: Context) -> Data:
        return state

    @handles(by="tower")  # misc
    def another_state(self, state: Other, message: Rang, context: Context) -> Data:
        return Data()

    @handles(by="tower")  # misc
    def no_state(self, state: Data, message: Rang, context: Context) -> None:
        return None

    @handles(by="tower")  # misc
    async def later(self, state: Data, message: Rang, context: Context) -> Data:
        return state

    @handles(by="tower")  # type-var
    def no_message(self, state: Data, message: str, context: Context) -> Data:
        return state

    @handles(by="tower")  # arg-type
    def no_context(self, state: Data, message: Rang, context: Rang) -> Data:
        return state

    @handles(by="tower")  # arg-type
    def too_few(self, state: Data, message: Rang) -> Data:
        return state

    @handles(by="tower")
    def wrong_inside(self, state: Data, message: Rang, context: Context) -> Data:
        context.publish("rang")  # arg-type
        context.now = 1  # misc
        message.tower = "east"  # misc
        message.towers  # attr-defined
        state.rings = 1  # misc
        Data(ring=1)  # call-arg
        return message  # return-value

    @handles(by="tower")
    def right(self, state: Data, message: Rang, context: Context) -> Data:
        return state

App(Data)  # arg-type
App(Bell())  # arg-type
HandlerSpec(Data)  # arg-type
HandlerSpec(Bell).given(state=Other())  # arg-type
HandlerSpec(Bell).when("rang")  # arg-type
HandlerSpec(Bell).when(Rang(tower="e")).then(state=Other())  # arg-type
"""


def errors(folder: Path, source: str) -> dict[int, set[str]]:
    """Return the codes of the errors that mypy finds, by line."""
    file = folder / "handlers_of_a_user.py"
    file.write_text(source)
    said, failed, _ = api.run(
        ["--config-file", str(REPOSITORY / "pyproject.toml"), "--cache-dir", str(REPOSITORY / ".mypy_cache"),
         "--no-error-summary", "--hide-error-context", "--no-pretty", str(file)]
    )  # fmt: skip
    assert not failed, failed
    found: dict[int, set[str]] = {}
    for line, code in re.findall(
        r"^[^:\n]*handlers_of_a_user.py:(\d+): error: .*\[([a-z-]+)\]$", said, re.MULTILINE
    ):
        found.setdefault(int(line), set()).add(code)
    return found


def test_right_handlers_pass(tmp_path, monkeypatch):
    monkeypatch.setenv("MYPYPATH", str(REPOSITORY))

    assert errors(tmp_path, GOOD) == {}


def test_wrong_types_are_errors_where_they_stand(tmp_path, monkeypatch):
    monkeypatch.setenv("MYPYPATH", str(REPOSITORY))
    expected = {
        number: code.strip()
        for number, line in enumerate(WRONG.splitlines(), 1)
        for _, found, code in [line.partition("  # ")]
        if found
    }

    found = errors(tmp_path, WRONG)

    assert {number: code for number, code in expected.items() if code not in found.get(number, ())} == {}
    assert set(found) == set(expected)
