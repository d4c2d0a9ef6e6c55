"""Threads, processes and asynchronous code."""

import asyncio
import multiprocessing
import threading
from concurrent.futures import ThreadPoolExecutor

from handlers import Context, Handler, handles
from shop import Basket, Ordered


class Concurrency(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        with ThreadPoolExecutor() as pool:  # expect: CM501
            tuple(pool.map(str.upper, state.lines))
        found = []
        worker = threading.Thread(target=found.append, args=(message.name,))  # expect: CM501
        worker.start()
        worker.join()
        with multiprocessing.Pool() as pool:  # expect: CM501
            sum(pool.map(len, state.lines))
        asyncio.run(_rate(message.name))  # expect: CM502
        return state


async def _rate(name):
    await asyncio.sleep(0)  # expect: CM502, CM502
    return len(name)
