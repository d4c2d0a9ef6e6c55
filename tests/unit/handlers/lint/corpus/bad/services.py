"""Network, other programs, databases and the console."""

import getpass
import sqlite3
import subprocess
import urllib.request
from os import system

import httpx
import psycopg
import requests

from handlers import Context, Handler, handles
from shop import Basket, Ordered


class Requests(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"note": str(requests.get("https://rates.example").text)})  # expect: CM402


class HttpxClient(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        with httpx.Client() as client:  # expect: CM402
            return state.model_copy(update={"note": client.get("https://rates.example").text})


class UrlOpen(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"note": str(urllib.request.urlopen("https://rates.example").read())})  # expect: CM402


class Program(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"note": str(subprocess.run(["date"], capture_output=True).stdout)})  # expect: CM403


class Shell(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        system("sync")  # expect: CM403
        return state


class Sqlite(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        with sqlite3.connect("shop.db") as database:  # expect: CM404
            return state.model_copy(update={"count": database.execute("select 1").fetchone()[0]})


class Postgres(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"note": str(psycopg.connect("dbname=shop").info)})  # expect: CM404


class Console(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"note": str(input())})  # expect: CM405


class UserName(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"note": str(getpass.getuser())})  # expect: CM302
