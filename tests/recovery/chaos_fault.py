"""Chaos: how lives end."""

from __future__ import annotations

import contextlib
import errno
import random
from collections.abc import Callable, Iterator

from tests.recovery.chaos_client import Client

from thalweg import faults
from thalweg.sink import outlet
from thalweg.source import log
from thalweg.state import compact, results
from thalweg.testing.disk import Death, FaultyDisk

_KINDS = ("verb", "verb", "verb", "point", "point", "failing", "failing", "callable", "stop")


class Fault:
    """One way for a life to end, drawn from the seed; `verbs`: how many a life without faults has."""

    only = ""
    """The fault point that counts; all do if it is empty."""

    def __init__(self, rng: random.Random, verbs: int) -> None:
        self.rng = rng
        self.kind = rng.choice(_KINDS)
        self.at = rng.randint(1, max(2, verbs))
        self.points = rng.randint(1, 60)
        self.code = rng.choice((errno.ENOSPC, errno.EIO, errno.EROFS))
        self.times = rng.choice((1, 1, 3, None))

    @contextlib.contextmanager
    def in_force(self, disk: FaultyDisk, client: Client) -> Iterator[None]:
        if self.kind == "verb":
            disk.die_at(disk.verbs + self.at, self.rng.randrange(1 << 30))
        elif self.kind == "failing":
            disk.fail_at(disk.verbs + self.at, self.code, self.times, seed=self.rng.randrange(1 << 30))
        elif self.kind == "callable":
            client.calls_until_refusal = 1 + self.points // 6
        elif self.kind == "stop":
            client.steps_until_stop = 1 + self.points // 6
        with faults.watch(self._pass(disk)) if self.kind == "point" else contextlib.nullcontext():
            yield

    def _pass(self, disk: FaultyDisk) -> Callable[[str], None]:
        def passed(name: str) -> None:
            self.points -= not self.only or name == self.only
            if self.points <= 0:
                disk.die_at(disk.verbs)  # no clean-up of the dying changes anything
                raise Death(f"at {name}")

        return passed

    def __str__(self) -> str:
        if self.kind == "failing":
            return f"{errno.errorcode[self.code]} at verb {self.at}, {self.times or 'all'} times"
        if self.kind == "callable":
            return f"call {1 + self.points // 6} of a callable raises"
        if self.kind == "stop":
            return f"stop in good order after step {1 + self.points // 6}"
        return f"death at verb {self.at}" if self.kind == "verb" else f"death at fault point {self.points}"


def at_point(name: str, passage: int) -> Fault:
    """The life ends at this fault point."""
    fault = Fault(random.Random(0), 1)
    fault.kind, fault.only, fault.points = "point", name, passage
    return fault


def at_verb(verb: int) -> Fault:
    """The life ends in this verb."""
    fault = Fault(random.Random(verb), 1)
    fault.kind, fault.at = "verb", verb
    return fault


def at_call(call: int) -> Fault:
    """This call of a callable raises."""
    fault = Fault(random.Random(0), 1)
    fault.kind, fault.points = "callable", 6 * (call - 1)
    return fault


def after_steps(steps: int) -> Fault:
    """The life ends in good order, before all is done."""
    fault = Fault(random.Random(0), 1)
    fault.kind, fault.points = "stop", 6 * (steps - 1)
    return fault


@contextlib.contextmanager
def limits(rng: random.Random) -> Iterator[None]:
    """What only much input reaches (results put aside, logs and stores merged), in some lives reached by little."""
    places = (
        (outlet, "INLINE_BYTES", 400),
        (results, "MERGE_FILES", 3),
        (compact, "FANOUT", 2),
        (log, "MERGE", 3),
    )
    before = [getattr(module, name) for module, name, _ in places]
    for module, name, small in places:
        if rng.random() < 0.3:
            setattr(module, name, small)
    try:
        yield
    finally:
        for (module, name, _), value in zip(places, before, strict=True):
            setattr(module, name, value)
