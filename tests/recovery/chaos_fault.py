"""Chaos: how lives end."""

from __future__ import annotations

import contextlib
import errno
import random
from collections.abc import Callable, Iterator
from dataclasses import replace

from tests.recovery.chaos_client import Client
from tests.recovery.chaos_sink import TIMEOUT, Trouble
from tests.recovery.chaos_world import World
from tests.support.disk import FaultyDisk

from thalweg import faults
from thalweg.optimize import keep_rows
from thalweg.sink import outlet
from thalweg.source import log
from thalweg.state import compact, results
from thalweg.testing.faults import Death

_KINDS = (
    *("verb", "verb", "verb", "point", "point", "failing"),
    *("callable", "callable", "files", "acknowledged", "stop"),
)


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
        self.trouble = Trouble.draw(rng)
        self.request = rng.choice(("pause", "resume"))
        self.is_deadly = rng.random() < 0.5
        """Whether a life with a sink in trouble is cut short."""

    @contextlib.contextmanager
    def in_force(self, disk: FaultyDisk, client: Client) -> Iterator[None]:
        seed = self.rng.randrange(1 << 30)
        if self.kind == "verb":
            disk.die_at(disk.verbs + self.at, seed)
        elif self.kind == "failing":
            disk.fail_at(disk.verbs + self.at, self.code, self.times, seed=seed)
        elif self.kind in ("callable", "files"):
            self._trouble_sinks(disk, client, seed)
        elif self.kind == "acknowledged":
            client.dies_after = self.request
        elif self.kind == "stop":
            client.steps_until_stop = 1 + self.points // 6
        with faults.watch(self._pass(disk, client)):
            yield

    def _trouble_sinks(self, disk: FaultyDisk, client: Client, seed: int) -> None:
        names = sorted(query.name for query in client.world.queries.values() if query.sink == "files")
        if self.kind == "callable":
            client.trouble = self.trouble
        elif names:
            below = f"sinks/{names[seed % len(names)]}/"
            disk.fail_at(disk.verbs + self.at // 2, self.code, self.times, seed=seed, below=below)
        if self.is_deadly:
            disk.die_at(disk.verbs + 2 * self.at, seed)

    def _pass(self, disk: FaultyDisk, client: Client) -> Callable[[str], None]:
        def passed(name: str) -> None:
            client.pass_point(name)
            if self.kind != "point":
                return
            self.points -= not self.only or name == self.only
            if self.points <= 0:
                disk.die_at(disk.verbs)  # no clean-up of the dying changes anything
                raise Death(f"at {name}")

        return passed

    def __str__(self) -> str:
        if self.kind == "failing":
            return f"{errno.errorcode[self.code]} at verb {self.at}, {self.times or 'all'} times"
        if self.kind == "files":
            return f"{errno.errorcode[self.code]} in a sink at verb {self.at // 2}, {self.times or 'all'} times"
        if self.kind == "callable":
            return str(self.trouble) + f", death at verb {2 * self.at}" * self.is_deadly
        if self.kind == "acknowledged":
            return f"death after a {self.request}"
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


def at_call(trouble: Trouble, dies_at: int | None = None) -> Fault:
    """A callable has this trouble; the life ends in a verb, if one is given."""
    fault = Fault(random.Random(0), 1)
    fault.kind, fault.trouble, fault.is_deadly = "callable", replace(trouble), dies_at is not None
    fault.at = (dies_at or 0) // 2
    return fault


def after_request(kind: str) -> Fault:
    """The life ends when a `pause` or a `resume` was acknowledged."""
    fault = Fault(random.Random(0), 1)
    fault.kind, fault.request = "acknowledged", kind
    return fault


def after_steps(steps: int) -> Fault:
    """The life ends in good order, before all is done."""
    fault = Fault(random.Random(0), 1)
    fault.kind, fault.points = "stop", 6 * (steps - 1)
    return fault


def draw_options(rng: random.Random, world: World, has_threads: bool) -> dict[str, dict[str, str]]:
    """Of the queries whose sinks are given something: how long they are waited for, and in some seeds how little may
    wait for one of them."""
    names = sorted(query.name for query in world.queries.values() if query.sink != "memory")
    delay = "1 millisecond" if has_threads else rng.choice(("100 milliseconds", "3 seconds"))
    timeout = f"{TIMEOUT:.0f} seconds"
    retries = rng.choice(("0", "1", "7"))
    options = {name: {"retries": retries, "retry_delay": delay, "sink_timeout": timeout} for name in names}
    if names and rng.random() < 0.25:
        options[rng.choice(names)]["undelivered_bytes"] = str(rng.choice((100, 1000, 3000)))
    return options


@contextlib.contextmanager
def limits(rng: random.Random) -> Iterator[None]:
    """What only much input reaches (results put aside, logs and stores merged), in some lives reached by little; and
    in some the rows of every stream are kept as they are."""
    places = (
        (outlet, "INLINE_BYTES", 400),
        (results, "MERGE_FILES", 3),
        (compact, "FANOUT", 2),
        (log, "MERGE", 3),
    )
    kept = (keep_rows, "WORTH", 0.0), (keep_rows, "STILL_WORTH", 0.0)
    parts = ((outlet, "PART_BYTES", 200),)
    more = random.Random(repr(rng.getstate()))  # without a change to what else the seed decides
    keeps, has_parts = more.random() < 0.4, more.random() < 0.7
    before = [getattr(module, name) for module, name, _ in (*places, *kept, *parts)]
    for module, name, small in places:
        if rng.random() < 0.3:
            setattr(module, name, small)
    for module, name, small in (*(kept if keeps else ()), *(parts if has_parts else ())):
        setattr(module, name, small)
    try:
        yield
    finally:
        for (module, name, _), value in zip((*places, *kept, *parts), before, strict=True):
            setattr(module, name, value)
