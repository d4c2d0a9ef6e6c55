"""Specifications of handlers: given a state and messages, when a message is handled, then outputs and a next state."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from pydantic import BaseModel, ConfigDict

from handlers import Context, Handler, Message, NondeterminismError, SpecError, State, handles
from handlers.draws import Seed
from handlers.testing import HandlerSpec
from handlers.testing.spec import differences, differences_of_messages

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
GUID, OTHER = UUID(int=1), UUID(int=2)


class Rang(Message):
    tower: str
    times: int = 1


class Drew(Message):
    tower: str
    how: str


class Heard(Message):
    by: str


class Told(Message):
    ids: tuple[UUID, ...] = ()
    drawn: tuple[str, ...] = ()
    rate: float = 0
    trace: str = ""


class Unknown(Message):
    tower: str


class Data(State):
    rings: int = 0
    weight: float = 0.0
    names: frozenset[str] = frozenset()
    last: datetime | None = None


class Bell(Handler[Data]):
    hidden: list[int] = []  # noqa: RUF012 - what a handler must not have

    @handles(by="tower")
    def rang(self, state: Data, message: Rang, context: Context) -> Data:
        if message.times < 0:
            raise ValueError("A bell rings at least once.")
        if message.times == 0:
            return state
        context.publish(Heard(by=context.message_id))
        return state.model_copy(update={"rings": state.rings + message.times, "last": context.now})

    @handles(by="tower")
    def drew(self, state: Data, message: Drew, context: Context) -> Data:
        if message.how in DEEDS:
            told = DEEDS[message.how](state, context)
        else:
            told = Told(drawn=(str(eval(message.how, {"r": context.random})),))
        if message.how == "weigh":
            return state.model_copy(update={"weight": 1, "names": {"a"}})
        if message.how == "nothing":
            return None  # type: ignore[return-value]
        if message.how == "hidden headers":
            context.publish(Told(), headers={"n": str(self.hide())})
        elif told is not None:
            context.publish(told, headers=context.headers)
        return state

    def hide(self) -> int:
        self.hidden.append(1)
        return len(self.hidden)


def hide_and_fail(_: Data, __: Context) -> None:
    if Bell().hide() > 2:
        raise ValueError("too many")


DEEDS: dict[str, Callable[[Data, Context], Told | None]] = {
    "guids": lambda _, context: Told(ids=(context.new_guid(), context.new_guid())),
    "rate": lambda _, context: Told(rate=context.capture("rate", lambda: 1 / 3)),
    "headers": lambda _, context: Told(trace=context.headers["trace"]),
    "hidden": lambda _, __: Told(rate=Bell().hide()),
    "hidden failure": hide_and_fail,
    "clock": lambda _, __: Told(trace=datetime.now(UTC).isoformat()),
    "change the state": lambda state, _: state.__dict__.update(rings=9),
    "weigh": lambda _, __: None,
    "nothing": lambda _, __: None,
    "hidden headers": lambda _, __: None,
}

SPEC = HandlerSpec(Bell)
ANY: Any = SPEC  # for calls that a type checker would reject
INVALID = Data().model_copy(update={"rings": "x"})
RANG, SILENT, BROKEN = Rang(tower="east"), Rang(tower="east", times=0), Rang(tower="east", times=-1)


@pytest.fixture(autouse=True)
def _nothing_hidden():
    Bell.hidden.clear()


def draws(how: str) -> Drew:
    return Drew(tower="east", how=how)


def test_given_messages_and_states_come_first_with_ids_in_their_order():
    base = SPEC.given(RANG)
    base.given(RANG)
    base.at(NOON).drawing(1).with_guids(GUID).capturing(rate=1)

    base.when(RANG).then(publishes=[Heard(by="2")])  # not changed by the specifications made from it
    for spec in (base.given(RANG), SPEC.given(RANG, RANG)):
        spec.when(RANG).then(publishes=[Heard(by="3")])
    assert SPEC.given(Rang(tower="east", times=2), state=Data(rings=40)).when(RANG).state.rings == 43
    weighed = SPEC.given(state=Data.model_construct(weight=1)).when(draws("headers"), headers={"trace": "t"})
    assert type(weighed.state.weight) is float  # as after it was stored


def test_expectations_that_hold_can_be_chained():
    handled = SPEC.when(RANG).then().then(publishes=[Heard])

    handled.then(publishes=[Heard(by="1")], state=Data(rings=1, last=datetime(2026, 1, 1, tzinfo=UTC)))
    assert handled.published == (Heard(by="1"),)
    SPEC.given(RANG).when(SILENT).then_nothing()
    SPEC.when(BROKEN).then_raises(ValueError).then_raises(ValueError, "at least once")
    SPEC.when(draws("clock")).then_raises(NondeterminismError, "use context.now")


def test_the_time_is_frozen_and_can_be_set():
    spec = SPEC.at(NOON).given(RANG).at(NOON + timedelta(hours=1))

    assert SPEC.at(NOON).when(RANG).state.last == spec.when(SILENT).state.last == NOON
    assert spec.when(RANG).state.last == NOON + timedelta(hours=1)


@pytest.mark.parametrize(
    ("expect", "told"),
    [
        (lambda: SPEC.when(RANG).then_nothing(), r"published\[0\]: expected nothing, got Heard\(by='1'\)"),
        (lambda: SPEC.when(draws("weigh")).then_nothing(), "state.weight: expected 0.0, got 1.0"),
        (lambda: SPEC.when(BROKEN).then_raises(KeyError), "expected KeyError, got ValueError: A bell rings"),
        (lambda: SPEC.when(BROKEN).then_raises(ValueError, "twice"), "ValueError that matches 'twice', got"),
        (lambda: SPEC.when(RANG).then_raises(ValueError), "expected ValueError, nothing was raised"),
        (lambda: SPEC.when(BROKEN).redelivered(), "Bell fails: "),
        (lambda: SPEC.when(BROKEN).then(), r"Bell fails: Rang\(.*\n  ValueError: A bell rings"),
        (lambda: SPEC.when(draws("clock")).then(), "\n  NondeterminismError: "),
        (lambda: SPEC.when(draws("change the state")).then(), "\n  InputStateChangedError: "),
        (lambda: SPEC.when(draws("nothing")).then(), "\n  CodecError: "),
        (lambda: SPEC.drawing(0.1).when(draws("r.gauss()")).then(), "\n  NotImplementedError: "),
    ],
)
def test_an_expectation_that_does_not_hold_fails_the_test(expect, told):
    with pytest.raises(AssertionError, match=told):
        expect()


def test_the_error_of_a_handler_is_the_cause_of_the_failure():
    with pytest.raises(AssertionError) as failed:
        SPEC.when(BROKEN).then()

    assert isinstance(failed.value.__cause__, ValueError)


SHUFFLED = "(lambda x: (r.shuffle(x), x)[1])([1, 2, 3])"


@pytest.mark.parametrize(
    ("call", "possible", "impossible"),
    [
        ("r.random()", 0.25, 1.0),
        ("r.random()", 0.0, "much"),
        ("r.randrange(100)", 42, 100),
        ("r.randrange(10, 20, 5)", 15, 12),
        ("r.randint(1, 6)", 6, 7),
        ("r.choice('abc')", "b", "d"),
        ("r.choices('ab', k=2)", ["b", "b"], ["b"]),
        ("r.sample([1, 2, 2], 2)", [2, 2], [1, 1]),
        (SHUFFLED, [2, 3, 1], [1]),
        ("r.uniform(1, 2)", 1.5, 3),
        ("r.getrandbits(3)", 7, 8),
        ("r.randbytes(2)", b"ab", b"abc"),
    ],
)
def test_draws_can_be_chosen_if_they_are_possible(call, possible, impossible):
    SPEC.drawing(possible).when(draws(call)).then(publishes=[Told(drawn=(str(possible),))]).redelivered()

    with pytest.raises(SpecError, match=r"\) cannot return .*: change that value of drawing\(...\)."):
        SPEC.drawing(impossible).when(draws(call))


def test_guids_captured_values_and_headers_can_be_chosen():
    SPEC.with_guids(GUID, OTHER).when(draws("guids")).then(publishes=[Told(ids=(GUID, OTHER))]).redelivered()
    SPEC.when(draws("headers"), headers={"trace": "t"}).then(publishes=[Told(trace="t")]).redelivered()
    SPEC.capturing(rate=0.5).when(draws("rate")).then(publishes=[Told(rate=0.5)]).redelivered()
    SPEC.when(draws("rate")).then(publishes=[Told(rate=1 / 3)])


def test_a_redelivered_message_has_the_same_result_and_draws():
    given = SPEC.given(RANG)
    given.when(RANG).redelivered().redelivered(BROKEN)

    one, same = (SPEC.when(draws("r.random()")).published for _ in range(2))
    assert one == same != given.when(draws("r.random()")).published


@pytest.mark.parametrize(
    ("how", "later", "told"),
    [
        ("hidden", 0, r"another result .*: Drew\(.*\n  published\[0\].rate: expected 1.0, got 3.0"),
        ("hidden", 3, "expected 1.0, got 5.0"),
        ("hidden failure", 0, r"Bell fails when the message is redelivered: .*\n  ValueError: too many"),
        ("hidden headers", 0, r"published\[0\] headers: expected {'n': '1'}, got {'n': '3'}"),
    ],
)
def test_what_a_handler_keeps_outside_of_its_state_is_found_by_a_redelivery(how, later, told):
    with pytest.raises(AssertionError, match=told):
        SPEC.when(draws(how)).redelivered(*[draws("hidden")] * later)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (lambda: ANY.when(Unknown(tower="east")), r"^Bell does not handle Unknown\(tower='east'\).$"),
        (lambda: ANY.when(7), "^Bell does not handle 7.$"),
        (lambda: ANY.given(RANG).when(Rang(tower="west")), "use one business object in a specification.$"),
        (lambda: ANY.given(BROKEN), r"^The handler failed for the given Rang\(.*: ValueError: A bell"),
        (lambda: ANY.given(state=Heard(by="x")), "^This is not a valid state of Bell: Expected Data, got Heard"),
        (lambda: ANY.given(state=INVALID), "^This is not a valid state of Bell: .*rings"),
        (lambda: ANY.when(RANG).then(state=Heard(by="x")), "^This is not a valid state of Bell"),
        (lambda: ANY.when(RANG).then(publishes=["Heard"]), r"^publishes=\[...\] takes messages .*, not 'Heard'.$"),
        (lambda: ANY.at(datetime(2026, 1, 1)), r"has no time zone: pass one, such as tzinfo=UTC.$"),  # noqa: DTZ001
        (lambda: ANY.at(NOON).given(RANG).at(NOON - timedelta(1)), r"^at\(...\) goes back"),
        (lambda: ANY.drawing(0.1).when(draws("r.random() + r.random()")), r"^The handler calls random\(\) after all"),
        (lambda: ANY.drawing(0.1, 0.2).when(draws("r.random()")), "^The handler does not draw the last 1 values of"),
        (lambda: ANY.with_guids(GUID).when(draws("guids")), "^The handler takes more guids than with_guids"),
        (lambda: ANY.with_guids(GUID, OTHER, GUID).when(draws("guids")), "^The handler leaves the last 1 guids of"),
        (lambda: ANY.with_guids("a"), "^with_guids takes UUIDs, not 'a'.$"),
        (lambda: ANY.capturing(rain=1).when(draws("rate")), "^The handler captures nothing as 'rain': remove it"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_with_a_sentence(wrong, sentence):
    with pytest.raises(SpecError, match=sentence):
        wrong()


def test_states_and_messages_are_compared_as_they_are_stored():
    # 1 in a field of type float and a set in a frozenset's place come back as what the fields are.
    weighed = Data(weight=1.0, names=frozenset({"a"}))

    SPEC.when(draws("weigh")).then(publishes=[], state=weighed)
    SPEC.given(draws("weigh")).when(SILENT).then(state=weighed)


class Part(BaseModel):
    model_config = ConfigDict(frozen=True)

    name: str
    sizes: tuple[int, ...] = ()


class Whole(Message):
    parts: tuple[Part, ...] = ()
    count: float = 0.0


PARTS = (Part(name="a"), Part(name="b", sizes=(1, 2)))
NAN = Whole(parts=PARTS, count=float("nan"))


@pytest.mark.parametrize(
    ("expected", "actual", "told"),
    [
        (NAN, NAN.model_copy(update={"count": float("nan")}), []),
        (Whole(parts=PARTS), Whole(parts=(PARTS[0], Part(name="b", sizes=(1, 3)))),
         [".parts[1].sizes[1]: expected 2, got 3"]),
        ((1,), (1, 2), ["[1]: expected nothing, got 2"]),
        ((1, 2), (1,), ["[1]: expected 2, got nothing"]),
        (frozenset("abc"), frozenset("cde"), [*(f": expected {each!r} in it" for each in "ab"),
         *(f": got {each!r} in it, not expected" for each in "de")]),
        *[(one, other, [f": expected {one!r}, got {other!r}"])
          for one, other in [(1, 1.0), (True, 1), (None, ""), ("1", 1), (NOON, "2026")]],
    ],
)  # fmt: skip
def test_what_differs_is_named_by_its_path_and_in_order(expected, actual, told):
    assert list(differences(expected, actual, "state")) == [f"state{each}" for each in told]


def test_messages_of_another_type_differ_as_a_whole_and_a_type_matches_any_message_of_it():
    assert not list(differences_of_messages([Whole, Heard], [Whole(count=1), Heard(by="2")]))
    assert list(differences_of_messages([Whole(), Whole, Heard], [Heard(by="2")] * 2)) == [
        f"published[0]: expected {Whole()!r}, got Heard(by='2')",
        "published[1]: expected a Whole, got Heard(by='2')",
        "published[2]: expected a Heard, got nothing",
    ]


class Counted(Message):
    counter: str
    by: int


class Counts(State):
    total: int = 0
    of: str = ""
    guid: str = ""


class Counter(Handler[Counts]):
    @handles(by="counter")
    def count(self, state: Counts, message: Counted, context: Context) -> Counts:
        seen = context.capture("seen", lambda: 0)
        secret = context.capture("secret", lambda: b"")
        total = state.total + message.by + seen + len(secret)
        return Counts(total=total, of=message.counter, guid=f"{context.now} {context.new_guid()}")


CASE = {
    "handler": "Counter",
    "business_id": "grace",
    "message_id": "m7",
    "type": "Counted",
    "body": {"counter": "grace", "by": 2},
    "headers": {},
    "now": "2026-03-02T08:00:00Z",
    "captured": {"seen": 5, "secret": {"base64": "/wA="}},
    "packed": {"secret": "c402ff00"},
    "schema": 1,
    "before": {"total": 1, "of": "grace", "guid": ""},
    "after": {"total": 10, "of": "grace", "guid": "x"},
}


def test_a_recorded_version_becomes_a_case(tmp_path):
    (tmp_path / "case.json").write_text(json.dumps(CASE))

    def anonymous(fields):
        return {name: "somebody" if value == "grace" else value for name, value in fields.items()}

    found = HandlerSpec.from_export(Counter, tmp_path / "case.json", replacing=anonymous)

    assert found.state.of == "somebody"
    assert isinstance(found.message, Counted)
    assert found.message.counter == "somebody"
    guid = Seed("m7", "Counter", "grace").guid("guid", 0)  # of the recorded object
    assert found.when().state == Counts(total=10, of="somebody", guid=f"2026-03-02 08:00:00+00:00 {guid}")
    found.when().redelivered()
    with pytest.raises(AssertionError, match=r"state\.guid"):
        found.when().then(state=found.state)


@pytest.mark.parametrize("other", [{"handler": "Counter2"}, {"type": "Rang"}])
def test_a_case_of_another_handler_is_refused(tmp_path, other):
    (tmp_path / "case.json").write_text(json.dumps(CASE | other))
    with pytest.raises(SpecError, match=r"Counter has no such case"):
        HandlerSpec.from_export(Counter, tmp_path / "case.json")
