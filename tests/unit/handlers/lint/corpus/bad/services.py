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


class Services(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        str(requests.get("https://rates.example").text)  # expect: CM402
        with httpx.Client() as client:  # expect: CM402
            client.get("https://rates.example").text
        str(urllib.request.urlopen("https://rates.example").read())  # expect: CM402
        str(subprocess.run(["date"], capture_output=True).stdout)  # expect: CM403
        system("sync")  # expect: CM403
        with sqlite3.connect("shop.db") as database:  # expect: CM404
            database.execute("select 1").fetchone()[0]
        str(psycopg.connect("dbname=shop").info)  # expect: CM404
        str(input())  # expect: CM405
        str(getpass.getuser())  # expect: CM302
        return state
