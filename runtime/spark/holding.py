"""Holding the lease of a table in a driver: taken, renewed in a thread of its own, and given back at the end."""

from __future__ import annotations

import getpass
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from eventstore import EventStoreError
from runtime.cleanup.lease import RENEW_SECONDS, Leases
from runtime.clock import Clock
from runtime.errors import LeaseLostError
from runtime.leases import Lease
from runtime.spark.workers.connection import Connection, TablePlace


@contextmanager
def holding(place: TablePlace, clock: Clock, *, take_over: bool) -> Iterator[str]:
    """Hold the lease while the block is worked through, and give its token.

    When somebody has taken it over, `LeaseLostError` is raised when the block ends, in whatever way; workers look for
    the token themselves, and end it. Raises `LeaseHeldError`.
    """
    connection = Connection(place, make=False)
    try:
        leases = Leases(connection.table, clock)
        keeper = _Keeper(place, clock, connection.run(leases.take(_name(), take_over=take_over)))
        try:
            yield keeper.lease.token
        finally:
            keeper.end()
            if keeper.lost is not None:
                raise keeper.lost
            with suppress(EventStoreError):  # it expires by itself
                connection.run(leases.release(keeper.lease))
    finally:
        connection.close()


class _Keeper:
    """Renews a lease again and again, until it is ended or the lease is lost."""

    def __init__(self, place: TablePlace, clock: Clock, lease: Lease) -> None:
        self.lease = lease
        self.lost: LeaseLostError | None = None
        self._place = place
        self._clock = clock
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="lease", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Renew it no more."""
        self._ended.set()
        self._thread.join()

    def _keep(self) -> None:
        connection = Connection(self._place, make=False)
        leases = Leases(connection.table, self._clock)
        try:
            while not self._ended.wait(RENEW_SECONDS):
                # A store that does not answer now may do so before the lease expires.
                with suppress(EventStoreError):
                    self.lease = connection.run(leases.renew(self.lease))
        except LeaseLostError as error:
            self.lost = error
        finally:
            connection.close()


def _name() -> str:
    """Return what tells this process from others, to people."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container may have no name for its user
        user = str(os.getuid())
    return f"{user} on {socket.gethostname()} (process {os.getpid()})"
