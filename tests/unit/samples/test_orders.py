"""The rules of orders and accounts, written with the kit for tests."""

import pytest

from handlers import DocumentReference
from handlers.testing import HandlerSpec, check_determinism
from samples.orders import app
from samples.orders.__main__ import generate
from samples.orders.domain import (
    Account,
    AccountData,
    CustomerTold,
    Order,
    OrderData,
    OrderPaid,
    PaymentAsked,
    PaymentMade,
    PaymentRefused,
    PlaceOrder,
    TopUp,
    print_invoice,
)

PLACED = OrderData(status="placed", customer="Ada", cents=919, rate="0.9190")
INVOICE = DocumentReference(name="n", sha256="0" * 64, size=1, media_type="application/pdf")
in_dollars = PlaceOrder(order_id="o-1", customer="Ada", cents=1000, currency="USD")
placed = HandlerSpec(Order).given(state=PLACED)
with_invoice = placed.capturing(**{"document invoice.pdf": INVOICE.model_dump()})


def test_an_order_is_priced_at_the_rate_of_the_moment_and_asks_the_account_for_it():
    HandlerSpec(Order).capturing(rate="0.9190").when(in_dollars).then(
        publishes=[PaymentAsked(order_id="o-1", customer="Ada", cents=919)], state=PLACED
    )


def test_what_is_redelivered_keeps_its_price_and_invoice_and_an_order_under_two_ids_asks_once():
    HandlerSpec(Order).when(in_dollars).then(publishes=[PaymentAsked]).redelivered(
        PaymentMade(order_id="o-1")
    )
    placed.when(in_dollars).then(publishes=[], state=PLACED)
    placed.when(PaymentMade(order_id="o-1")).then(publishes=[OrderPaid, CustomerTold]).redelivered()


def test_a_paid_order_goes_to_the_warehouse_with_its_invoice_and_the_customer_is_told():
    with_invoice.when(PaymentMade(order_id="o-1")).then(
        publishes=[
            OrderPaid(order_id="o-1", customer="Ada", cents=919, rate="0.9190", invoice=INVOICE),
            CustomerTold(order_id="o-1", customer="Ada", text="Your order o-1 is on its way (9.19 euros)."),
        ],
        state=PLACED.model_copy(update={"status": "paid"}),
    )


@pytest.mark.parametrize("customer", ["Ada", "Łukasz 太郎"])  # whose letters the font lacks
def test_an_invoice_is_a_pdf_that_is_another_one_each_time(customer):
    first, second = (print_invoice("o-1", PLACED.model_copy(update={"customer": customer})) for _ in range(2))
    assert first.startswith(b"%PDF-")
    assert first != second


def test_of_a_refused_order_only_the_customer_is_told():
    placed.when(PaymentRefused(order_id="o-1")).then(
        publishes=[CustomerTold], state=PLACED.model_copy(update={"status": "refused"})
    )


def test_an_account_pays_as_long_as_there_is_enough_in_it():
    account = HandlerSpec(Account).given(TopUp(customer="Ada", cents=1000))

    account.when(PaymentAsked(order_id="o-1", customer="Ada", cents=1000)).then(
        publishes=[PaymentMade(order_id="o-1")], state=AccountData(cents=0)
    )
    account.when(PaymentAsked(order_id="o-1", customer="Ada", cents=1001)).then(
        publishes=[PaymentRefused(order_id="o-1")], state=AccountData(cents=1000)
    )


def test_the_handlers_are_deterministic():
    check_determinism(app)


def test_a_log_is_the_same_for_the_same_seed():
    assert list(generate(20)) == list(generate(20)) != list(generate(20, seed=2))
