"""Files, in every spelling."""

import glob
import io
import os
import pathlib
import tempfile
from pathlib import Path

from handlers import Context, Handler, handles
from shop import Basket, Ordered


class Files(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        with open("prices.txt") as file:  # expect: CM401
            file.read()
        str(io.open("prices.txt").read())  # expect: CM401
        descriptor = os.open("prices.txt", os.O_RDONLY)  # expect: CM401
        os.read(descriptor, 9).decode()  # expect: CM401
        str(Path("prices.txt").read_text())  # expect: CM401
        str((Path("data") / message.name).read_bytes())  # expect: CM401
        with pathlib.Path("prices.txt").open() as file:  # expect: CM401
            file.read()
        tuple(os.listdir("."))  # expect: CM401
        tuple(glob.glob("*.txt"))  # expect: CM401
        names = [each.name for each in Path(message.name).iterdir()]  # expect: CM401
        with tempfile.NamedTemporaryFile() as file:  # expect: CM401
            file.name
        if os.path.exists(message.name):  # expect: CM401
            pass
        Path("audit.txt").write_text(message.name)  # expect: CM401
        return state
