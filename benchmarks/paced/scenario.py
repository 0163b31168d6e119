"""Who asks for what, when: AJoin's two workloads of queries that come and go, and how long each request took."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

CREATE, DROP = "create", "drop"


@dataclass(frozen=True)
class Request:
    moment: float
    """Seconds from the beginning of the pace."""
    op: str
    query: int
    """Its place in the workload."""


@dataclass(frozen=True)
class Scenario:
    name: str
    """As AJoin writes it: `1qs 20qp`, one query a second until there are 20 in parallel."""
    requests: tuple[Request, ...]
    before: int
    """Queries that are there from the beginning: the first of the workload."""
    queries: int
    """That are used in all."""
    seconds: float
    """Of the pace: until everything has been asked for, and a while longer."""


def sc1(per_second: float, most: int, hold: float) -> Scenario:
    """Queries come one by one, until there are `most`; one is there before."""
    requests = tuple(Request((i - 1) / per_second, CREATE, i) for i in range(1, most))
    end = requests[-1].moment if requests else 0.0
    return Scenario(f"SC1 {per_second:g}qs {most}qp", requests, 1, most, end + hold)


def sc2(count: int, every: float, rounds: int, hold: float) -> Scenario:
    """Every `every` seconds `count` queries come and those of the round before go; one is there all the time."""
    requests = []
    for turn in range(rounds + 1):
        first = 1 + turn * count
        if turn < rounds:
            requests += [Request(turn * every, CREATE, i) for i in range(first, first + count)]
        if turn:
            requests += [Request(turn * every, DROP, i) for i in range(first - count, first)]
    return Scenario(f"SC2 {count}q/{every:g}s", tuple(requests), 1, 1 + rounds * count, rounds * every + hold)


def up_front(most: int, seconds: float) -> Scenario:
    """All are there from the beginning: AJoin's compile time."""
    return Scenario(f"up front {most}qp", (), most, most, seconds)


@dataclass(frozen=True)
class Answered:
    """What became of a request, in seconds from the call."""

    request: Request
    late: float
    """By which the call came after its moment: the requests before it took too long."""
    acked: float
    """Until it was durable."""
    began: float | None
    """Until the first batch began that runs with it (or without it)."""
    done: float | None
    """Until that batch had ended: results are out, or what only it used is no longer in the manifest."""
    first_result: float | None = None


def spread(values: Sequence[float | None]) -> dict[str, float] | None:
    """Of those that are known."""
    found = sorted(value for value in values if value is not None)
    if not found:
        return None
    return {"count": len(found), "least": found[0], "median": median(found), "most": found[-1]}


def told(answers: Sequence[Answered]) -> dict[str, Any]:
    """For both kinds of request, how long each step took."""
    found: dict[str, Any] = {"late_most": max((a.late for a in answers), default=0.0)}
    for op in (CREATE, DROP):
        some = [a for a in answers if a.request.op == op]
        for step in ("acked", "began", "done", "first_result"):
            values = spread([getattr(a, step) for a in some])
            if values is not None:
                found[f"{op}_{step}"] = values
    return found
