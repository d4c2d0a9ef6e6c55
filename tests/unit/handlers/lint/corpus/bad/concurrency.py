"""Threads, processes and asynchronous code."""

import asyncio
import multiprocessing
import threading
from concurrent.futures import ThreadPoolExecutor

from handlers import Context, Handler, handles
from shop import Basket, Ordered


class Pool(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        with ThreadPoolExecutor() as pool:  # expect: CM501
            return state.model_copy(update={"lines": tuple(pool.map(str.upper, state.lines))})


class Thread(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        found = []
        worker = threading.Thread(target=found.append, args=(message.name,))  # expect: CM501
        worker.start()
        worker.join()
        return state.model_copy(update={"lines": tuple(found)})


class Processes(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        with multiprocessing.Pool() as pool:  # expect: CM501
            return state.model_copy(update={"count": sum(pool.map(len, state.lines))})


async def _rate(name):
    await asyncio.sleep(0)  # expect: CM502, CM502
    return len(name)


class EventLoop(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"count": asyncio.run(_rate(message.name))})  # expect: CM502
