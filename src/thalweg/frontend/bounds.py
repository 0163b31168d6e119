"""Conditions over event times -> how far apart the rows of two streams may be.

Each condition is `time(to) - time(of) <= us`. Together they are a graph of distances: two streams are bounded
where the shortest paths between them are finite both ways.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from thalweg.errors import empty_bound, interval_too_long, unbounded_join
from thalweg.frontend.intervals import LONGEST_US
from thalweg.frontend.scope import FromEntry, Scope
from thalweg.frontend.tree import Binary, Column, Interval, Node, Span, Unary, Within
from thalweg.model.join import TimeBound


@dataclass(frozen=True)
class Limit:
    """time(to) - time(of) <= us."""

    of: str
    to: str
    us: int
    span: Span


def within(one: FromEntry, other: FromEntry, limit: Within) -> list[Limit]:
    """|time(one) - time(other)| <= the length."""
    return both_ways(one, other, limit.us, limit.span)


def both_ways(one: FromEntry, other: FromEntry, us: int, span: Span) -> list[Limit]:
    return [Limit(one.name, other.name, us, span), Limit(other.name, one.name, us, span)]


def read_limits(node: Node, scope: Scope) -> list[Limit]:
    """What a comparison says about the event times of two streams; nothing where it is about anything else."""
    if not isinstance(node, Binary) or node.op not in ("=", "<", "<=", ">", ">="):
        return []
    left, right = _sum(node.left, scope), _sum(node.right, scope)
    if left is None or right is None:
        return []
    times, us = _add(left, right, -1)
    ends = sorted((sign, name) for name, sign in times.items() if sign)
    if [sign for sign, _ in ends] != [-1, 1]:
        return []
    # time(to) - time(of) + us `op` 0
    (_, of), (_, to) = ends
    strict = 1 if node.op in ("<", ">") else 0
    limits: list[Limit] = []
    if node.op in ("=", "<", "<="):
        limits.append(Limit(of, to, -us - strict, node.span))
    if node.op in ("=", ">", ">="):
        limits.append(Limit(to, of, us - strict, node.span))
    return limits


Sum = tuple[dict[str, int], int]
"""Event times, each with its sign or count, and microseconds."""


def _sum(node: Node, scope: Scope) -> Sum | None:
    """An expression made of event times and intervals of fixed length only."""
    if isinstance(node, Column):
        ((entry, field), *more) = scope.find(node)
        is_time = entry.stream is not None and entry.stream.time == field.name and not more
        return ({entry.name: 1}, 0) if is_time else None
    if isinstance(node, Interval):
        return None if node.months else ({}, node.us)
    if isinstance(node, Unary) and node.op in ("+", "-"):
        arg = _sum(node.arg, scope)
        return None if arg is None else _add(({}, 0), arg, 1 if node.op == "+" else -1)
    if isinstance(node, Binary) and node.op in ("+", "-"):
        left, right = _sum(node.left, scope), _sum(node.right, scope)
        return None if left is None or right is None else _add(left, right, 1 if node.op == "+" else -1)
    return None


def _add(left: Sum, right: Sum, sign: int) -> Sum:
    names = {**left[0], **right[0]}
    return {n: left[0].get(n, 0) + sign * right[0].get(n, 0) for n in names}, left[1] + sign * right[1]


def close(limits: Iterable[Limit], entries: Sequence[FromEntry], text: str) -> tuple[TimeBound, ...]:
    """One bound per pair that conditions name. Raises where some pair of streams is not bounded both ways."""
    tightest: dict[tuple[str, str], Limit] = {}
    for limit in limits:
        pair = (limit.of, limit.to)
        if abs(limit.us) > LONGEST_US:
            raise interval_too_long(text, limit.span)
        if pair not in tightest or limit.us < tightest[pair].us:
            tightest[pair] = limit
    _check_pairs(tightest, entries, text)
    reach = _shortest({pair: limit.us for pair, limit in tightest.items()}, [e.name for e in entries])
    for place, entry in enumerate(entries):
        for other in entries[:place]:
            _check_bounded(entry, other, reach, text)
    if max(reach.values()) > LONGEST_US:
        # Of streams that only others connect: the lengths on the way between them add up.
        raise interval_too_long(text, max(tightest.values(), key=lambda limit: limit.us).span)
    if any(reach[name, name] < 0 for name in (e.name for e in entries)):
        last = max(tightest.values(), key=lambda limit: limit.span)
        raise empty_bound([f"'{e.shown}'" for e in entries], text, last.span)
    bounds: list[TimeBound] = []
    for left, right in sorted({(min(pair), max(pair)) for pair in tightest}):
        # A side that nobody wrote is what the others imply.
        high, low = (tightest[p].us if p in tightest else reach[p] for p in ((left, right), (right, left)))
        bounds.append(TimeBound(left, right, -int(low), int(high)))
    return tuple(bounds)


def _check_pairs(tightest: dict[tuple[str, str], Limit], entries: Sequence[FromEntry], text: str) -> None:
    shown = {e.name: f"'{e.shown}'" for e in entries}
    for (of, to), limit in tightest.items():
        back = tightest.get((to, of))
        if back is not None and limit.us + back.us < 0:
            raise empty_bound([shown[of], shown[to]], text, max(limit.span, back.span))


def _shortest(edges: dict[tuple[str, str], int], names: list[str]) -> dict[tuple[str, str], float]:
    """Floyd and Warshall's shortest paths."""
    reach: dict[tuple[str, str], float] = {(a, b): 0 if a == b else math.inf for a in names for b in names}
    reach.update(edges)
    for k in names:
        for i in names:
            for j in names:
                reach[i, j] = min(reach[i, j], reach[i, k] + reach[k, j])
    return reach


def _check_bounded(entry: FromEntry, other: FromEntry, reach: dict[tuple[str, str], float], text: str) -> None:
    later, earlier = reach[other.name, entry.name], reach[entry.name, other.name]
    if math.isfinite(later) and math.isfinite(earlier):
        return
    detail = "nothing limits how far apart their times are"
    if math.isfinite(later) or math.isfinite(earlier):
        way = "before" if math.isfinite(later) else "after"
        detail = f"rows of '{entry.shown}' may come any length of time {way} those of '{other.shown}'"
    raise unbounded_join(entry.shown, other.shown, (entry.time, other.time), detail, text, entry.source.span)
