"""The process that Spark's Python workers are forked from, with everything they need imported already.

After each task PySpark collects garbage over all that was ever imported; frozen objects are left out of it.
"""

from __future__ import annotations

import gc
import socket
from collections.abc import Callable

Worker = Callable[[socket.socket, bool], int]
_ENDED = 1
"""The exit code after which PySpark asks no further task of a worker."""


def warm_up() -> None:
    """Imports the data path and loads its compiled kernels, then freezes them."""
    from thalweg.batch import local_runner

    local_runner.warm_up()
    gc.collect()
    gc.freeze()


def until_closed(work: Worker) -> Worker:
    """A worker that ends without a word when Spark has closed its connection.

    That is how Spark ends workers, idle ones and those whose task it has given up. PySpark's worker takes it for an
    error, tries to report it to Spark, and prints that nobody listens.
    """

    def work_until_closed(connection: socket.socket, authenticated: bool) -> int:
        try:
            if not connection.recv(1, socket.MSG_PEEK):
                return _ENDED
            return work(connection, authenticated)
        except (BrokenPipeError, ConnectionResetError):
            if _is_open(connection):
                raise
            return _ENDED

    return work_until_closed


def _is_open(connection: socket.socket) -> bool:
    """Whether the other end could still hear what went wrong."""
    try:
        connection.send(b"", socket.MSG_NOSIGNAL)
        return connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


if __name__ == "__main__":
    from pyspark import daemon

    daemon.worker = until_closed(daemon.worker)
    warm_up()
    daemon.manager()
