"""`python -m samples.orders`: the sample from its log to the warehouse and the letters, in the folder `orders-output`.

With `--servers`, states and documents are in Azurite, the warehouse's table in PostgreSQL, and the keys of letters in
Redis. The servers and their data last as long as the run. With `--live`, `consistent serve` handles orders as they
come: through a pipe, or on the Kafka broker that is named.
"""

import argparse
import shutil
import signal
import sys
from pathlib import Path

from samples.orders import live
from samples.orders.servers import EMBEDDED, MissingServersError, run, running_servers

FOLDER = Path("orders-output")
TERMINATED = 143


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m samples.orders", description="Run the sample of orders.")
    parser.add_argument("--servers", action="store_true", help="with Azurite, PostgreSQL and Redis")
    parser.add_argument(
        "--live", nargs="?", const="pipe", metavar="kafka://HOST:PORT", help="by consistent serve"
    )
    given = parser.parse_args()
    if given.live:
        live.run(given.live, FOLDER / "live")
        return
    if not given.servers:
        run(EMBEDDED, FOLDER)
        print(f"\nLook into {FOLDER}: warehouse.db, letters.txt, documents. Run it again: nothing changes.")
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))  # ends the servers, too
    folder = FOLDER / "servers"
    shutil.rmtree(folder, ignore_errors=True)
    try:
        with running_servers() as places:
            run(places, folder)
    except MissingServersError as missing:
        sys.exit(str(missing))


if __name__ == "__main__":
    main()
