"""A handler method is `(self, state, message, context) -> state`; an app refuses any other form with one sentence."""

from collections.abc import Iterator

import pytest

from handlers import App, AppError, Context, Handler, Message, State, handles


class Rang(Message):
    tower: str


class Struck(Message):
    tower: str
    city: str


class Data(State):
    rings: int = 0


class OtherData(State):
    rings: int = 0


def test_a_handler_without_handling_methods_is_refused():
    class Bell(Handler[Data]):
        def rang(self, state: Data, message: Rang, context: Context) -> Data:
            return state

    with pytest.raises(
        AppError, match=r"^Bell handles no message: mark its methods with @handles\(by=...\).$"
    ):
        App(Bell)


def test_a_handler_that_does_not_name_its_state_is_refused():
    class Bell(Handler):
        @handles(by="tower")
        def rang(self, state: Data, message: Rang, context: Context) -> Data:
            return state

    with pytest.raises(AppError, match=r"^Bell must name its state: class Bell\(Handler\[SomeState\]\).$"):
        App(Bell)


def test_the_state_may_be_named_by_a_base_class():
    class Sounding(Handler[Data]):
        pass

    class Bell(Sounding):
        @handles(by="tower")
        def rang(self, state: Data, message: Rang, context: Context) -> Data:
            return state

    assert App(Bell).handlers["Bell"].state_type is Data


def test_a_method_with_too_few_arguments_is_refused():
    class Bell(Handler[Data]):
        @handles(by="tower")  # type: ignore[arg-type]
        def rang(self, state: Data, message: Rang) -> Data:
            return state

    with pytest.raises(AppError, match=r"Bell.rang must be a plain method \(self, state, message, context\)"):
        App(Bell)


def test_a_coroutine_method_is_refused():
    class Bell(Handler[Data]):
        @handles(by="tower")  # type: ignore[misc]
        async def rang(self, state: Data, message: Rang, context: Context) -> Data:
            return state

    with pytest.raises(AppError, match=r"Bell.rang must be a plain method"):
        App(Bell)


def test_a_static_method_is_refused():
    class Bell(Handler[Data]):
        @staticmethod  # type: ignore[type-var, misc]
        @handles(by="tower")  # type: ignore[arg-type]
        def rang(state: Data, message: Rang, context: Context) -> Data:
            return state

    with pytest.raises(AppError, match=r"Bell.rang must be a plain method"):
        App(Bell)


def test_a_method_that_takes_another_state_is_refused():
    class Bell(Handler[Data]):
        @handles(by="tower")  # type: ignore[misc]
        def rang(self, state: OtherData, message: Rang, context: Context) -> Data:
            return Data()

    with pytest.raises(AppError, match=r"Bell.rang must take and return a Data, the state of its handler.$"):
        App(Bell)


def test_a_method_that_returns_something_else_is_refused():
    class Bell(Handler[Data]):
        @handles(by="tower")  # type: ignore[misc]
        def rang(self, state: Data, message: Rang, context: Context) -> None:
            return None

    with pytest.raises(AppError, match=r"Bell.rang must take and return a Data, the state of its handler.$"):
        App(Bell)


def test_a_method_whose_message_has_no_annotation_is_refused():
    class Bell(Handler[Data]):
        @handles(by="tower")
        def rang(self, state: Data, message, context: Context) -> Data:
            return state

    expected = r"Bell.rang must annotate its message with a subclass of Message: \(message: SomeMessage\).$"
    with pytest.raises(AppError, match=expected):
        App(Bell)


@pytest.mark.parametrize("annotation", [Message, str, State])
def test_a_method_whose_message_is_not_one_message_type_is_refused(annotation):
    class Bell(Handler[Data]):
        @handles(by="tower")
        def rang(self, state: Data, message: annotation, context: Context) -> Data:  # type: ignore[valid-type]
            return state

    with pytest.raises(AppError, match=r"Bell.rang must annotate its message with a subclass of Message"):
        App(Bell)


def test_an_annotation_that_is_not_there_at_run_time_is_refused_with_the_reason():
    class Bell(Handler[Data]):
        @handles(by="tower")
        def rang(self, state: Data, message: "Unimported", context: Context) -> Data:  # type: ignore[name-defined] # noqa: F821
            return state

    with pytest.raises(
        AppError, match=r"'Unimported' is not defined. Import the types of a handler at run time"
    ):
        App(Bell)


def test_two_methods_for_one_type_and_revision_are_refused():
    class Bell(Handler[Data]):
        @handles(by="tower")
        def rang(self, state: Data, message: Rang, context: Context) -> Data:
            return state

        @handles(by="tower")
        def rang_again(self, state: Data, message: Rang, context: Context) -> Data:
            return state

    with pytest.raises(AppError, match=r"^Bell has two methods for Rang, revision 1: number them apart.$"):
        App(Bell)


def test_two_revisions_of_a_method_stand_side_by_side_and_the_highest_is_the_newest():
    class Bell(Handler[Data]):
        @handles(by="tower")
        def rang(self, state: Data, message: Rang, context: Context) -> Data:
            return state

        @handles(by="tower", revision=3)
        def rang_louder(self, state: Data, message: Rang, context: Context) -> Data:
            return state

    (route,) = App(Bell).routes("Rang")

    assert sorted(route.revisions) == [1, 3]
    assert route.newest == 3


def test_two_revisions_with_different_business_ids_are_refused():
    class Bell(Handler[Data]):
        @handles(by="tower")
        def struck(self, state: Data, message: Struck, context: Context) -> Data:
            return state

        @handles(by="city", revision=2)
        def struck_again(self, state: Data, message: Struck, context: Context) -> Data:
            return state

    expected = "^Bell: all revisions for Struck must take the same type and the same `by`.$"
    with pytest.raises(AppError, match=expected):
        App(Bell)


def test_a_generator_method_is_refused():
    class Bell(Handler[Data]):
        @handles(by="tower")  # type: ignore[misc]
        def rang(self, state: Data, message: Rang, context: Context) -> Iterator[Data]:
            yield state

    with pytest.raises(AppError, match=r"Bell.rang must be a plain method"):
        App(Bell)


def test_a_method_whose_arguments_go_by_name_only_is_refused():
    class Bell(Handler[Data]):
        @handles(by="tower")  # type: ignore[arg-type]
        def rang(self, state: Data, message: Rang, *, context: Context) -> Data:
            return state

    with pytest.raises(AppError, match=r"Bell.rang must be a plain method"):
        App(Bell)


def test_a_method_that_takes_something_else_for_a_context_is_refused():
    class Bell(Handler[Data]):
        @handles(by="tower")  # type: ignore[arg-type]
        def rang(self, state: Data, message: Rang, context: Rang) -> Data:
            return state

    with pytest.raises(
        AppError, match=r"Bell.rang must take a Context as its last argument: \(context: Context\)."
    ):
        App(Bell)


@pytest.mark.parametrize("by", ["", "tower.", 7, None, Rang])
def test_a_business_id_that_is_no_name_of_a_field_is_refused(by):
    with pytest.raises(
        AppError, match=r"^@handles\(by=...\) takes the name of the field that holds the business id, not "
    ):
        handles(by=by)


@pytest.mark.parametrize("revision", [0, -1, "2", 1.0, True, None])
def test_a_revision_that_is_no_number_from_1_on_is_refused(revision):
    with pytest.raises(AppError, match=r"^@handles\(revision=...\) takes an int from 1, not .*\.$"):
        handles(by="tower", revision=revision)


def test_a_handler_that_needs_arguments_to_be_made_is_refused():
    class Bell(Handler[Data]):
        def __init__(self, loudness: int) -> None:
            pass

        @handles(by="tower")
        def rang(self, state: Data, message: Rang, context: Context) -> Data:
            return state

    expected = r"^Bell\(\) failed: .*'loudness'. Remove its __init__: a handler keeps nothing"
    with pytest.raises(AppError, match=expected):
        App(Bell)


def test_a_handler_that_sets_attributes_when_it_is_made_is_refused():
    class Bell(Handler[Data]):
        def __init__(self) -> None:
            self.rings = 0

        @handles(by="tower")
        def rang(self, state: Data, message: Rang, context: Context) -> Data:
            return state

    with pytest.raises(AppError, match=r"^Bell\(\) failed: Bell.rings cannot be set"):
        App(Bell)


def test_a_handler_keeps_nothing_between_messages():
    class Bell(Handler[Data]):
        pass

    with pytest.raises(
        AttributeError, match=r"Bell.rings cannot be set, as a handler keeps nothing between messages"
    ):
        Bell().rings = 1
