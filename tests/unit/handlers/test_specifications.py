"""A specification says what a handler does: given what was, when a message comes, then these outputs and this state."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from handlers import Context, Handler, Message, NondeterminismError, SpecError, State, handles
from handlers.draws import Seed
from handlers.testing import HandlerSpec

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


@pytest.fixture(autouse=True)
def _nothing_hidden():
    Bell.hidden.clear()


def draws(how: str) -> Drew:
    return Drew(tower="east", how=how)


def test_given_messages_and_states_come_first_with_ids_in_their_order():
    rang, twice = Rang(tower="east"), SPEC.given(Rang(tower="east")).given(Rang(tower="east"))
    base = SPEC.given(rang)
    base.given(rang)
    base.at(NOON).drawing(1).with_guids(GUID).capturing(rate=1)

    base.when(rang).then(publishes=[Heard(by="2")])  # it is not changed by those made of it
    for spec in (twice, SPEC.given(rang, rang)):
        spec.when(rang).then(publishes=[Heard(by="3")])
    assert SPEC.given(Rang(tower="east", times=2), state=Data(rings=40)).when(rang).state.rings == 43
    weighed = SPEC.given(state=Data.model_construct(weight=1)).when(draws("headers"), headers={"trace": "t"})
    assert type(weighed.state.weight) is float  # as after it was stored


def test_then_compares_only_what_it_is_given():
    handled = SPEC.when(Rang(tower="east"))

    handled.then()
    handled.then(publishes=[Heard])
    handled.then(publishes=[Heard(by="1")], state=Data(rings=1, last=datetime(2026, 1, 1, tzinfo=UTC)))
    assert handled.published == (Heard(by="1"),)


def test_the_time_is_frozen_and_can_be_set():
    spec = SPEC.at(NOON).given(Rang(tower="east")).at(NOON + timedelta(hours=1))

    assert SPEC.at(NOON).when(Rang(tower="east")).state.last == NOON
    assert spec.when(Rang(tower="east", times=0)).state.last == NOON
    assert spec.when(Rang(tower="east")).state.last == NOON + timedelta(hours=1)


def test_then_nothing_means_no_outputs_and_the_same_state():
    SPEC.given(Rang(tower="east")).when(Rang(tower="east", times=0)).then_nothing()

    with pytest.raises(AssertionError, match=r"published\[0\]: expected nothing, got Heard\(by='1'\)"):
        SPEC.when(Rang(tower="east")).then_nothing()
    with pytest.raises(AssertionError, match=r"state.weight: expected 0.0, got 1.0"):
        SPEC.when(draws("weigh")).then_nothing()


def test_what_the_handler_raises_can_be_expected_and_fails_the_test_otherwise():
    handled, silent = SPEC.when(Rang(tower="east", times=-1)), SPEC.when(Rang(tower="east"))

    handled.then_raises(ValueError).then_raises(ValueError, "at least once")
    for expect, sentence in (
        (lambda: handled.then_raises(KeyError), "expected KeyError, got ValueError: A bell rings"),
        (lambda: handled.then_raises(ValueError, "twice"), "expected ValueError that matches 'twice', got"),
        (lambda: silent.then_raises(ValueError), "expected ValueError, nothing was raised"),
        (handled.redelivered, "Bell fails: "),
    ):
        with pytest.raises(AssertionError, match=sentence):
            expect()
    with pytest.raises(AssertionError, match=r"Bell fails: Rang\(.*\n  ValueError: A bell rings") as failed:
        handled.then()
    assert isinstance(failed.value.__cause__, ValueError)
    SPEC.when(draws("clock")).then_raises(NondeterminismError, "use context.now")


@pytest.mark.parametrize(
    ("how", "error"),
    [
        ("clock", "NondeterminismError"),
        ("change the state", "InputStateChangedError"),
        ("nothing", "CodecError"),
    ],
)
def test_a_handler_that_does_what_no_handler_may_fails(how, error):
    with pytest.raises(AssertionError, match=f"\n  {error}: "):
        SPEC.when(draws(how)).then()


SHUFFLED = "(lambda x: (r.shuffle(x), x)[1])([1, 2, 3])"


@pytest.mark.parametrize(
    ("call", "value"),
    [
        ("r.random()", 0.25),
        ("r.randrange(100)", 42),
        ("r.randrange(10, 20, 5)", 15),
        ("r.randint(1, 6)", 6),
        ("r.choice('abc')", "b"),
        ("r.choices('ab', k=2)", ["b", "b"]),
        ("r.sample([1, 2, 2], 2)", [2, 2]),
        (SHUFFLED, [2, 3, 1]),
        ("r.uniform(1, 2)", 1.5),
        ("r.gauss()", 0.1),
        ("r.normalvariate(0, 1)", 0.1),
        ("r.expovariate(1)", 0.1),
        ("r.getrandbits(3)", 7),
        ("r.randbytes(2)", b"ab"),
    ],
)
def test_draws_can_be_chosen(call, value):
    SPEC.drawing(value).when(draws(call)).then(publishes=[Told(drawn=(str(value),))]).redelivered()


@pytest.mark.parametrize(
    ("call", "value"),
    [
        ("r.random()", 1.0),
        ("r.randrange(100)", 100),
        ("r.randint(1, 6)", 7),
        ("r.choice('abc')", "d"),
        ("r.choices('ab', k=2)", ["b"]),
        ("r.sample([1, 2, 2], 2)", [1, 1]),
        ("r.shuffle([1, 2])", [1]),
        ("r.uniform(1, 2)", 3),
        ("r.gauss()", "much"),
        ("r.random()", "much"),
        ("r.getrandbits(3)", 8),
        ("r.randbytes(2)", b"abc"),
    ],
)
def test_a_draw_that_cannot_be_is_refused(call, value):
    with pytest.raises(SpecError, match=r"\) cannot return .*: change that value of drawing\(...\)."):
        SPEC.drawing(value).when(draws(call))


def test_too_many_and_too_few_draws_are_refused():
    with pytest.raises(
        SpecError, match=r"^The handler calls random\(\) after all values of drawing\(...\): add one for it"
    ):
        SPEC.drawing(0.1).when(draws("r.random() + r.random()"))
    with pytest.raises(
        SpecError, match=r"^The handler does not draw the last 1 values of drawing\(...\): remove them.$"
    ):
        SPEC.drawing(0.1, 0.2).when(draws("r.random()"))


def test_guids_can_be_chosen():
    SPEC.with_guids(GUID, OTHER).when(draws("guids")).then(publishes=[Told(ids=(GUID, OTHER))]).redelivered()

    with pytest.raises(SpecError, match=r"^The handler takes more guids than with_guids"):
        SPEC.with_guids(GUID).when(draws("guids"))
    with pytest.raises(SpecError, match=r"^The handler leaves the last 1 guids of with_guids"):
        SPEC.with_guids(GUID, OTHER, GUID).when(draws("guids"))
    with pytest.raises(SpecError, match=r"^with_guids takes UUIDs, not 'a'.$"):
        SPEC.with_guids("a")  # type: ignore[arg-type]


def test_captured_values_and_headers_can_be_chosen():
    SPEC.when(draws("headers"), headers={"trace": "t"}).then(publishes=[Told(trace="t")]).redelivered()
    SPEC.capturing(rate=0.5).when(draws("rate")).then(publishes=[Told(rate=0.5)]).redelivered()
    SPEC.when(draws("rate")).then(publishes=[Told(rate=1 / 3)])

    with pytest.raises(SpecError, match=r"^The handler captures nothing as 'rain': remove it"):
        SPEC.capturing(rain=1).when(draws("rate"))


def test_a_message_that_comes_again_gives_the_same_with_the_draws_of_the_message():
    given = SPEC.given(Rang(tower="east"))
    given.when(Rang(tower="east")).redelivered().redelivered(Rang(tower="east", times=-1))

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
def test_what_a_handler_keeps_outside_of_its_state_is_found_when_a_message_comes_again(how, later, told):
    with pytest.raises(AssertionError, match=told):
        SPEC.when(draws(how)).redelivered(*[draws("hidden")] * later)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (lambda: SPEC.when(Unknown(tower="east")), r"^Bell does not handle Unknown\(tower='east'\).$"),
        (
            lambda: SPEC.when(7),  # type: ignore[arg-type]
            "^Bell does not handle 7.$",
        ),
        (
            lambda: SPEC.given(Rang(tower="east")).when(Rang(tower="west")),
            "use one business object in a specification.$",
        ),
        (
            lambda: SPEC.given(Rang(tower="east", times=-1)),
            r"^The handler failed for the given Rang\(.*: ValueError: A bell",
        ),
        (
            lambda: SPEC.given(state=Heard(by="x")),  # type: ignore[arg-type]
            "^This is not a valid state of Bell: Expected Data, got Heard.$",
        ),
        (
            lambda: SPEC.given(state=Data.model_construct(rings="x")),  # type: ignore[arg-type]
            "^This is not a valid state of Bell: .*rings",
        ),
        (
            lambda: SPEC.when(Rang(tower="east")).then(state=Heard(by="x")),  # type: ignore[arg-type]
            "^This is not a valid state of Bell",
        ),
        (
            lambda: SPEC.when(Rang(tower="east")).then(publishes=["Heard"]),  # type: ignore[list-item]
            r"^publishes=\[...\] takes messages and message types, not 'Heard'.$",
        ),
        (lambda: SPEC.at(datetime(2026, 1, 1)), r"has no time zone: pass one, such as tzinfo=UTC.$"),  # noqa: DTZ001
        (lambda: SPEC.at(NOON).given(Rang(tower="east")).at(NOON - timedelta(1)), r"^at\(...\) goes back"),
    ],
)
def test_what_cannot_be_is_refused_with_a_sentence(wrong, sentence):
    with pytest.raises(SpecError, match=sentence):
        wrong()


def test_states_and_messages_are_compared_as_they_are_stored():
    # 1 in a field of type float and a set in a frozenset's place come back as what the fields are.
    weighed = Data(weight=1.0, names=frozenset({"a"}))

    SPEC.when(draws("weigh")).then(publishes=[], state=weighed)
    SPEC.given(draws("weigh")).when(Rang(tower="east", times=0)).then(state=weighed)


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
