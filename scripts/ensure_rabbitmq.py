"""Put RabbitMQ into .make/rabbitmq, for the tests of consumers.

Debian's and Ubuntu's packages are downloaded and unpacked there, with Erlang's, which needs no administrator, installs
nothing and starts nothing.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PLACE = ROOT / ".make" / "rabbitmq"
ERLANG = (
    "base", "asn1", "crypto", "eldap", "ftp", "inets", "mnesia", "os-mon", "parsetools", "public-key", "runtime-tools",
    "snmp", "ssl", "syntax-tools", "tftp", "tools", "xmerl",
)  # fmt: skip
PACKAGES = ("rabbitmq-server", "libsctp1", *(f"erlang-{name}" for name in ERLANG))
MISSING = "RabbitMQ's packages cannot be downloaded with apt-get: the tests of amqp:// need Debian or Ubuntu."
LAUNCHER = """#!/bin/sh
# Starts the server; the caller gives RABBITMQ_NODENAME, ports and folders.
here=$(dirname "$(readlink -f "$0")")
export PATH="$here/usr/lib/erlang/bin:$PATH" RABBITMQ_HOME="$(echo "$here"/usr/lib/rabbitmq/lib/rabbitmq_server-*)"
exec "$RABBITMQ_HOME/sbin/rabbitmq-server" "$@"
"""


def main() -> None:
    """Download and unpack the packages. Exits with what is missing where that is not possible."""
    print("Unpacking RabbitMQ into .make/rabbitmq ...", flush=True)
    shutil.rmtree(PLACE, ignore_errors=True)
    PLACE.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as folder:
        try:
            try:
                run(["apt-get", "download", *PACKAGES], folder)
            except subprocess.CalledProcessError:
                run(["apt-get", "update"], folder)
                run(["apt-get", "download", *PACKAGES], folder)
            for package in Path(folder).glob("*.deb"):
                run(["dpkg", "-x", str(package), str(PLACE)], folder)
        except (FileNotFoundError, subprocess.CalledProcessError) as error:
            said = getattr(error, "stdout", None) or error
            sys.exit(f"{said}\n{MISSING}")
    root = PLACE / "usr" / "lib" / "erlang"
    for script in (root / "bin" / "erl", *root.glob("erts-*/bin/erl")):
        script.write_text(script.read_text().replace("ROOTDIR=/usr/lib/erlang", f"ROOTDIR={root}"))
    launcher = PLACE / "rabbitmq-server"
    launcher.write_text(LAUNCHER)
    launcher.chmod(0o755)


def run(command: list[str], folder: str) -> None:
    """Run a command quietly in a folder. Raises `CalledProcessError` with what it said."""
    subprocess.run(
        command, check=True, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


if __name__ == "__main__":
    main()
