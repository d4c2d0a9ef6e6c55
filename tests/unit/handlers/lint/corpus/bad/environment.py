"""Environment, process, machine and locale."""

import locale
import os
import platform
import socket
import sys
from os import environ, getpid

from handlers import Context, Handler, handles
from shop import Basket, Ordered


class Environment(Handler[Basket]):
    @handles(by="shop")
    def ordered(self, state: Basket, message: Ordered, context: Context) -> Basket:
        str(os.environ["REGION"])  # expect: CM301
        str(environ.get("REGION", ""))  # expect: CM301
        str(os.getenv("REGION"))  # expect: CM301
        str(sys.argv[1:])  # expect: CM302
        getpid()  # expect: CM302
        str(platform.node())  # expect: CM303
        str(socket.gethostname())  # expect: CM303
        if sys.platform == "win32":  # expect: CM303
            pass
        str(locale.format_string("%d", state.count, grouping=True))  # expect: CM304
        f"{state.count:n}"  # expect: CM304
        str(os.getcwd())  # expect: CM302
        os.cpu_count()  # expect: CM303
        return state
