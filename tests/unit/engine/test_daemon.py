"""Unit: a worker whose connection Spark has closed ends without a word; what goes wrong otherwise is told."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from thalweg.engine.daemon import until_closed

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    ours, sparks = socket.socketpair()
    yield ours, sparks
    ours.close()
    sparks.close()


def test_an_idle_worker_ends_when_its_connection_is_closed(pair: Pair) -> None:
    ours, sparks = pair
    sparks.close()

    def work(connection: socket.socket, authenticated: bool) -> int:
        raise AssertionError("there is no task")

    assert until_closed(work)(ours, True) != 0


def test_a_task_finds_its_input_untouched(pair: Pair) -> None:
    ours, sparks = pair
    sparks.send(b"task")

    def work(connection: socket.socket, authenticated: bool) -> int:
        assert authenticated
        assert connection.recv(100) == b"task"
        return 0

    assert until_closed(work)(ours, True) == 0


def test_a_task_that_spark_has_given_up_ends_quietly(pair: Pair) -> None:
    ours, sparks = pair
    sparks.send(b"task")

    def work(connection: socket.socket, authenticated: bool) -> int:
        connection.recv(100)
        sparks.close()
        connection.send(b"result")
        return 0

    assert until_closed(work)(ours, True) != 0


@pytest.mark.parametrize("error", [ValueError("x"), BrokenPipeError("of some other pipe"), EOFError()])
def test_errors_that_somebody_can_hear_are_raised(pair: Pair, error: Exception) -> None:
    ours, sparks = pair
    sparks.send(b"task")

    def work(connection: socket.socket, authenticated: bool) -> int:
        connection.recv(100)
        raise error

    with pytest.raises(type(error)):
        until_closed(work)(ours, True)
