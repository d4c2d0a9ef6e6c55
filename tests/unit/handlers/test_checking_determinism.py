"""`check_determinism` handles generated messages here and in another process, and finds what differs."""

import json
import subprocess
import sys
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Annotated, Literal
from uuid import UUID

import pytest
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, StrictInt, model_validator

from handlers import App, Context, Handler, Message, SpecError, State, handles
from handlers.testing import check_determinism
from handlers.testing.strategies import scenarios
from samples.shooting_range import app as shooting_range
from tests.unit.handlers import improper
from tests.unit.handlers.processes import REPOSITORY

thorough = pytest.mark.thorough


@pytest.mark.parametrize("app", [shooting_range, improper.captures, improper.fails])
def test_the_sample_what_is_captured_and_what_always_fails_is_deterministic(app):
    check_determinism(app, examples=10)


@pytest.mark.parametrize(
    ("handler", "differs"),
    [
        (improper.Hashes, r"state: \{.*\} here, \{.*\} there"),
        (improper.RaisesSometimes, r"raised: (None here, ValueError there|ValueError here, None there)"),
        (improper.RemembersMessages, r"published: 1 messages here, 0 there"),
        pytest.param(improper.Orders, r"published\[0\].body: \{.*\} here, \{.*\} there", marks=thorough),
        pytest.param(improper.Localises, r"state: \{.*\} here, \{.*\} there", marks=thorough),
        pytest.param(improper.Identifies, r"published\[0\].body: .*<object object at .*\} there", marks=thorough),
    ],
)  # fmt: skip
def test_what_differs_is_named_with_handler_and_message(handler, differs):
    # The town is drawn: Python writes one with an apostrophe in it between quotation marks.
    message = r"""message \d for ('.*'|".*"), Named \{.*"""
    expected = rf"(?s)^{handler.__name__} is not deterministic: {message}differs:\n  {differs}"

    with pytest.raises(AssertionError, match=expected) as found:
        check_determinism(App(handler))

    assert "in another process with PYTHONHASHSEED=" in str(found.value)


def test_the_smallest_message_that_differs_is_shown():
    with pytest.raises(AssertionError) as found:
        check_determinism(App(improper.Identifies), seed=3)

    # All messages differ, so the smallest is the shortest of those that come first
    first = str(found.value).partition(" differs:")[0]
    shortest = min(len(messages[0][1]) for _, _, messages in scenarios(App(improper.Identifies), 100, 3, {}))
    assert "message 1 for" in first
    assert len(first.partition(", Named ")[2]) == shortest


def test_what_the_guard_refuses_is_told_with_the_line():
    told = r"Looks.named \(improper.py, line \d+\) is not allowed, .*: use context.now.$"
    with pytest.raises(AssertionError, match=told):
        check_determinism(App(improper.Looks), examples=3)


def test_the_same_seed_gives_the_same_scenarios_of_all_handlers_each_about_one_business_object():
    one, same, other = (scenarios(shooting_range, 50, seed, {}) for seed in (1, 1, 2))

    assert one == same != other
    assert max(len(messages) for _, _, messages in one) > 3
    for _, business_id, messages in one:
        assert {json.loads(body)["game_id"] for _, body in messages} == {business_id}
    assert {handler for handler, _, _ in one} == {"ShootingRange", "LeaderBoard"}
    names = {name for _, _, messages in one for name, _ in messages}
    assert names == {"StartNewRound", "FireAt", "Hit", "Missed"}


def test_dates_of_generated_messages_have_and_lack_a_time_zone():
    drawn = scenarios(App(improper.Hashes), 50, 0, {})
    times = [json.loads(body)["at"] for _, _, messages in drawn for _, body in messages]

    assert {datetime.fromisoformat(each).tzinfo for each in times} == {None, UTC}


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Part(BaseModel):
    model_config = ConfigDict(frozen=True, ser_json_bytes="base64", val_json_bytes="base64")

    code: bytes
    parts: tuple["Part", ...] = ()


class Everything(Message):
    owner: "Owner"
    text: str
    short: str = Field(max_length=3, min_length=1)
    pattern: Annotated[str, Field(pattern="^[a-z]+$")]
    number: int
    percent: int = Field(ge=0, le=100)
    positive: Annotated[float, Field(gt=0)]
    truth: bool
    price: Decimal = Field(max_digits=6, decimal_places=2)
    guid: UUID
    at: datetime
    day: date
    hour: time
    lasts: timedelta
    colour: Colour
    choice: Literal["a", 1]
    maybe: int | None
    pair: tuple[int, str]
    few: tuple[Annotated[str, Field(max_length=2)], ...] = Field(max_length=2)
    words: frozenset[str]
    part: Part
    aliased: str = Field(alias="theAlias")


class Owner(BaseModel):
    model_config = ConfigDict(frozen=True)

    id: StrictInt


class Checked(Message):
    house: str
    number: int
    check: int

    @model_validator(mode="after")
    def is_right(self) -> "Checked":
        if self.check != 31 * self.number + 4711:
            raise ValueError("wrong")
        return self


class Keeps(State):
    text: str = ""


class Keeper(Handler[Keeps]):
    @handles(by="owner.id")
    def everything(self, state: Keeps, message: Everything, context: Context) -> Keeps:
        return state.model_copy(update={"text": message.model_dump_json(exclude={"words"})})


class CheckedKeeper(Handler[Keeps]):
    @handles(by="house")
    def checked(self, state: Keeps, message: Checked, context: Context) -> Keeps:
        return state.model_copy(update={"text": str(message.number)})


def test_messages_are_made_of_every_type_that_an_app_takes():
    assert len(scenarios(App(Keeper), 20, 0, {})) >= 10
    check_determinism(App(Keeper), examples=5)


@thorough
def test_a_message_that_checks_more_than_its_limits_needs_a_strategy():
    with pytest.raises(SpecError, match=r"^No valid messages were generated: pass .*strategies="):
        check_determinism(App(CheckedKeeper), examples=5)

    checked = st.builds(
        lambda house, number: Checked(house=house, number=number, check=31 * number + 4711),
        st.text(min_size=1),
        st.integers(),
    )
    check_determinism(App(CheckedKeeper), examples=5, strategies={Checked: checked})


def test_handlers_that_another_process_cannot_import_are_refused_with_a_sentence():
    class Local(CheckedKeeper):
        pass

    checked = st.just(Checked(house="h", number=0, check=4711))
    told = r"cannot be sent to another process: .* define them at the top of a module.$"
    with pytest.raises(SpecError, match=told):
        check_determinism(App(Local), examples=1, strategies={Checked: checked})


OF_A_PROGRAM = """
from tests.unit.handlers.improper import *
from handlers.testing import check_determinism
class Mine(Captures): pass
check_determinism(App(Mine), examples=1)
"""
WITHOUT_HYPOTHESIS = """
import sys
sys.modules['hypothesis'] = None
from tests.unit.handlers import improper
from handlers.testing import HandlerSpec, check_determinism
HandlerSpec(improper.Captures)
check_determinism(improper.captures, examples=1)
"""


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (OF_A_PROGRAM, "define them at the top of a module.\n"),
        (WITHOUT_HYPOTHESIS, "needs Hypothesis: pip install 'consistent-messaging[testing]'.\n"),
    ],
    ids=["handlers of a program", "without Hypothesis"],
)
def test_what_a_program_lacks_is_told_in_a_sentence(code, told):
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )

    assert done.stderr.endswith(told)
