"""Files, in every spelling."""

import glob
import io
import os
import pathlib
import tempfile
from pathlib import Path

from handlers import Context, Handler, handles
from shop import Basket, Ordered


class Open(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        with open("prices.txt") as file:  # expect: CM401
            return state.model_copy(update={"note": file.read()})


class OpenOfIo(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"note": str(io.open("prices.txt").read())})  # expect: CM401


class FileDescriptor(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        descriptor = os.open("prices.txt", os.O_RDONLY)  # expect: CM401
        return state.model_copy(update={"note": os.read(descriptor, 9).decode()})  # expect: CM401


class ReadText(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"note": str(Path("prices.txt").read_text())})  # expect: CM401


class ReadBytesOfAJoinedPath(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"note": str((Path("data") / message.name).read_bytes())})  # expect: CM401


class PathOpen(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        with pathlib.Path("prices.txt").open() as file:  # expect: CM401
            return state.model_copy(update={"note": file.read()})


class ListDirectory(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"lines": tuple(os.listdir("."))})  # expect: CM401


class Glob(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        return state.model_copy(update={"lines": tuple(glob.glob("*.txt"))})  # expect: CM401


class IterateDirectory(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        names = [each.name for each in Path(message.name).iterdir()]  # expect: CM401
        return state.model_copy(update={"lines": tuple(names)})


class TemporaryFile(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        with tempfile.NamedTemporaryFile() as file:  # expect: CM401
            return state.model_copy(update={"note": file.name})


class FileExists(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        if os.path.exists(message.name):  # expect: CM401
            return state
        return state.model_copy(update={"count": 0})


class WritesAFile(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        Path("audit.txt").write_text(message.name)  # expect: CM401
        return state
