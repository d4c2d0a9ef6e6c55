"""Rates, payments and other helpers of the orders."""

import http.client
import os
import pathlib
import string
from datetime import datetime
from decimal import Decimal
from functools import partial
from types import MappingProxyType

TABLE = MappingProxyType({"EUR": Decimal("1.1"), "USD": Decimal(1)})
DATA = pathlib.Path(__file__).parent / "data"


class Converter:
    def __init__(self, table):
        self.table = table
        self.used = []

    def convert(self, amount, currency):
        self.used.append(currency)
        return amount * self.table[currency]


class Signer:
    def __init__(self, text):
        self.text = text
        self.key = os.environ.get("KEY", "")  # expect: CM301

    @property
    def signature(self):
        return f"{self.text} {self.stamp()}"  # expect: CM101

    stamp = partial(datetime.now)


def current(currency):
    client = http.client.HTTPSConnection("rates.example")  # expect: CM402
    client.request("GET", f"/{currency}")
    return Decimal(client.getresponse().read().decode())


def post(path, body):
    return _client().post(path, body)


def _client(cache={}):
    if "client" not in cache:
        cache["client"] = object()  # expect: CM803
    return cache["client"]


def is_new(sku):
    return is_new.seen is None or sku not in is_new.seen


is_new.seen = None


def template():
    return string.Template((DATA / "note.txt").read_text())  # expect: CM401
