"""What is easily written otherwise than it must be: each error says what to write."""

from dataclasses import dataclass

import pytest

from handlers import App, AppError, Context, Handler, Message, State, handles


class Paid(Message):
    account: str


class Done(Message):
    account: str


class Total(State):
    count: int = 0


@dataclass
class Plain:
    account: str = ""


def test_handles_without_brackets():
    expected = r'^@handles needs the field .* above .*paid: write @handles\(by="FIELD"\)\.$'
    with pytest.raises(AppError, match=expected):

        class Account(Handler[Total]):
            @handles  # type: ignore[call-arg, arg-type] # as a type checker says too
            def paid(self, state: Total, message: Paid, context: Context) -> Total:
                return state


def test_handles_with_nothing_in_its_brackets():
    with pytest.raises(AppError, match=r'^@handles needs the field .*: write @handles\(by="FIELD"\)\.$'):
        handles()  # type: ignore[call-arg]


def test_a_dataclass_as_state():
    class Account(Handler[Plain]):  # type: ignore[type-var] # as a type checker says too
        @handles(by="account")  # type: ignore[type-var]
        def paid(self, state: Plain, message: Paid, context: Context) -> Plain:
            return state

    with pytest.raises(AppError) as raised:
        App(Account)

    assert str(raised.value) == (
        "Account has a Plain as its state, which is no State: write class Plain(State), with the same fields and no "
        "@dataclass."
    )


def test_a_dataclass_as_message():
    class Account(Handler[Total]):
        @handles(by="account")  # type: ignore[type-var]
        def paid(self, state: Total, message: Plain, context: Context) -> Total:
            return state

    with pytest.raises(
        AppError, match=r"takes a Plain, which is no message: write class Plain\(Message\)\.$"
    ):
        App(Account)


def test_several_message_types_in_one_method():
    class Account(Handler[Total]):
        @handles(by="account")
        def changed(self, state: Total, message: Paid | Done, context: Context) -> Total:
            return state

    with pytest.raises(AppError, match="takes one of Paid, Done: write a method for each message type"):
        App(Account)


def test_two_handlers_of_one_name():
    def account() -> type[Handler[Total]]:
        class Account(Handler[Total]):
            @handles(by="account")
            def paid(self, state: Total, message: Paid, context: Context) -> Total:
                return state

        return Account

    with pytest.raises(AppError, match=r"Two handlers are named Account .*: give one of them another name"):
        App(account(), account())
