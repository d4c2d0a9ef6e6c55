"""Environment, process, machine and locale."""

import locale
import os
import platform
import socket
import sys
from os import environ, getpid

from handlers import Context, Handler, handles
from shop import Basket, Ordered


class EnvironmentVariable(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"note": str(os.environ["REGION"])})  # expect: CM301


class EnvironmentByName(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"note": str(environ.get("REGION", ""))})  # expect: CM301


class GetEnvironment(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"note": str(os.getenv("REGION"))})  # expect: CM301


class CommandLine(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"note": str(sys.argv[1:])})  # expect: CM302


class ProcessId(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"count": getpid()})  # expect: CM302


class MachineName(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"note": str(platform.node())})  # expect: CM303


class HostName(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"note": str(socket.gethostname())})  # expect: CM303


class OperatingSystem(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        if sys.platform == "win32":  # expect: CM303
            return state
        return state.model_copy(update={"count": 1})


class Locale(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"note": str(locale.format_string("%d", state.count, grouping=True))})  # expect: CM304


class LocaleInAFormat(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"note": f"{state.count:n}"})  # expect: CM304


class WorkingDirectory(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"note": str(os.getcwd())})  # expect: CM302


class Processors(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"count": os.cpu_count()})  # expect: CM303
