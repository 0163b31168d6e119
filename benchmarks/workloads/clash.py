"""CLASH's streams: a join whose partners move from one edge to another mid-stream, and random queries.

    clash/adaptive      CLASH, Section VII.B, Fig. 8a: r(a), s(a, b), t(b, c), u(c), each pair within 5 s
    clash/adaptive@48   the same, but the change comes with file 48 instead of file 24 (`@never`: not at all)
    clash/50            CLASH, Section VII.C, Fig. 9: 50 random joins of three of ten streams, each counted once
    clash/50x4          the same, of four

A generated likeness of what CLASH describes, slower by event time: 5,000 rows/s of each stream in place of 100,000.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from benchmarks.workloads.model import Query, Stream, Workload
from benchmarks.workloads.windowed import NOWHERE

NAMES = {
    "clash/adaptive": "a linear join of four streams; at file 24 partners move to other edges (CLASH Fig. 8)",
    "clash/N[xSIZE]": "N random joins of three (or SIZE) of ten streams, a partner for each row (CLASH Fig. 9)",
}
START_US = 1_700_000_000_000_000
DELAY_SECONDS = 1

ROWS_PER_FILE = 10_000
ROWS_PER_SECOND = 5_000
"""Of event time, of each stream. A file spans 2 s, an epoch of eight batches 16 s."""
WITHIN_SECONDS = 5
"""CLASH: the window of every stream is five seconds."""
FLIP_FILE = 24
EDGES = {"a": ("r", "s"), "b": ("s", "t"), "c": ("t", "u")}
LINEAR = {"r": ("a",), "s": ("a", "b"), "t": ("b", "c"), "u": ("c",)}

# CLASH starts with one partner on every edge but a few more between s and t, so that s asks r first and t asks u;
# then a row of s has a hundred partners in r and none in t, and a row of t likewise in u. None at all would leave no
# results to compare: with one in 10,000 there are about as many as before, 100 * 100 / 10,000 for a row of s.
BEFORE = {"a": 1.0, "b": 1.5, "c": 1.0}
AFTER = {"a": 100.0, "b": 1 / 10_000, "c": 100.0}
"""Attribute -> partners that a row finds within the window."""


def named(name: str) -> Workload | None:
    drawn = re.fullmatch(r"clash/(\d+)(?:x([2-5]))?", name)
    if drawn is not None:
        return random_joins(name, int(drawn[1]), int(drawn[2] or 3))
    found = re.fullmatch(r"clash/adaptive(?:@(never|\d+))?", name)
    if found is None:
        return None
    return adaptive(None if found[1] == "never" else int(found[1] or FLIP_FILE))


def adaptive(flip: int | None = FLIP_FILE) -> Workload:
    """`flip`: the first file of the changed data; None: it never changes."""
    streams = tuple(linear_stream(name, partial(partners_at, flip)) for name in LINEAR)
    at = "never" if flip is None else flip
    return Workload(
        name="clash/adaptive" if flip == FLIP_FILE else f"clash/adaptive@{at}",
        streams=streams,
        queries=(Query("linear", LINEAR_TEXT, spark=LINEAR_SPARK, batch=LINEAR_TEXT),),
        rows_per_file=ROWS_PER_FILE,
        files_per_batch=1,
        data=f"clash-adaptive-{at}",
    )


def partners_at(flip: int | None, number: int) -> Mapping[str, float]:
    return BEFORE if flip is None or number < flip else AFTER


def linear_stream(name: str, partners: Callable[[int], Mapping[str, float]]) -> Stream:
    return stream(name, LINEAR[name], WITHIN_SECONDS, partners)


def stream(
    name: str, attributes: tuple[str, ...], seconds: int, partners: Callable[[int], Mapping[str, float]]
) -> Stream:
    """`partners`: of a file, attribute -> partners that a row finds by it among the rows at most `seconds` away."""
    columns = [f"{name}_{c}" for c in ("id", *attributes)]
    time = f"{name}_ts"
    schema = pa.schema([*((c, pa.int64()) for c in columns), (time, pa.timestamp("us", tz="UTC"))])

    def make(number: int) -> pa.Table:
        rng = np.random.default_rng((8, *name.encode(), number))
        ids = np.arange(number * ROWS_PER_FILE, (number + 1) * ROWS_PER_FILE, dtype=np.int64)
        made: dict[str, object] = {f"{name}_id": ids}
        for attribute in attributes:
            # Of as many values as rows are near enough, one is a partner.
            values = max(1, round(2 * seconds * ROWS_PER_SECOND / partners(number)[attribute]))
            made[f"{name}_{attribute}"] = rng.integers(0, values, ROWS_PER_FILE, dtype=np.int64)
        made[time] = pa.array(START_US + ids * 1_000_000 // ROWS_PER_SECOND, schema.field(time).type)
        return pa.table(made, schema=schema)

    return Stream(name, schema, time, DELAY_SECONDS, make)


def joined(left: str, right: str, attribute: str, seconds: int = WITHIN_SECONDS) -> str:
    """The condition of an edge: as good in Thalweg, Spark and DuckDB."""
    reach = f"INTERVAL {seconds} SECONDS"
    equality = f"{left}_{attribute} = {right}_{attribute}"
    return f"{equality} AND {right}_ts BETWEEN {left}_ts - {reach} AND {left}_ts + {reach}"


LINEAR_TEXT = "SELECT r_id, s_id, t_id, u_id FROM r" + "".join(
    f" JOIN {right} ON {joined(left, right, attribute)}" for attribute, (left, right) in EDGES.items()
)
# A chained join of Spark's wants one event time in what the join before it gives: the others are left behind.
LINEAR_SPARK = (
    "SELECT r_id, s_id, t_id, u_id FROM (SELECT r_id, s_id, t_id, t_c, t_ts FROM "
    f"(SELECT r_id, s_id, s_b, s_ts FROM r JOIN s ON {joined('r', 's', 'a')}) "
    f"JOIN t ON {joined('s', 't', 'b')}) JOIN u ON {joined('t', 'u', 'c')}"
)

# -- random queries ----------------------------------------------------------------------------------------

RELATIONS = 10
RANDOM_SECONDS = 1
SEED = 9


@dataclass(frozen=True)
class Attached:
    """A stream joined to one that is there already, by an attribute of the same name in both."""

    stream: str
    to: str
    by: str

    @property
    def condition(self) -> str:
        return joined(self.to, self.stream, self.by, RANDOM_SECONDS)


def random_joins(name: str, queries: int, size: int) -> Workload:
    """What the join optimiser is measured on (`thalweg bench join-planning`), with rows to run it on."""
    from benchmarks import join_planning

    drawn, _ = join_planning.draw(join_planning.Workload(queries, size, RELATIONS), SEED)
    chains = [in_order(query.predicates) for query in drawn]
    attributes: dict[str, set[str]] = defaultdict(set)
    for link in (link for chain in chains for link in chain):
        attributes[link.stream].add(link.by)
        attributes[link.to].add(link.by)
    streams = [
        stream(relation, tuple(sorted(names)), RANDOM_SECONDS, partial(one_partner, names))
        for relation, names in sorted(attributes.items())
    ]
    return Workload(
        name=name,
        streams=tuple(streams),
        queries=tuple(random_query(f"q{i}", chain) for i, chain in enumerate(chains)),
        rows_per_file=ROWS_PER_FILE,
        files_per_batch=4,
        data=name.replace("/", "-"),
    )


def one_partner(attributes: Iterable[str], _: int) -> Mapping[str, float]:
    """CLASH: every join of selectivity 1 / rate."""
    return dict.fromkeys(attributes, 1.0)


def in_order(pairs: Iterable[tuple[str, str]]) -> list[Attached]:
    """The tree of a query from one of its ends on: each stream after what it is joined to, if possible at once."""
    edges = [(one.split(".")[0], other.split(".")[0], one.split(".")[1]) for one, other in pairs]
    ends = Counter(relation for edge in edges for relation in edge[:2])
    inside, found = [min(relation for relation, n in ends.items() if n == 1)], []
    while edges:
        to, edge = next((to, edge) for to in reversed(inside) for edge in edges if to in edge[:2])
        edges.remove(edge)
        new = edge[1] if edge[0] == to else edge[0]
        found.append(Attached(new, to, edge[2]))
        inside.append(new)
    return found


def random_query(name: str, chain: list[Attached]) -> Query:
    names = [chain[0].to, *(link.stream for link in chain)]
    ids = ", ".join(f"{relation}_id" for relation in sorted(names))
    text, spark = names[0], names[0]
    for before, link in zip(names, chain, strict=False):
        text += f" JOIN {link.stream} ON {link.condition}"
        spark = f"(SELECT * EXCEPT ({before}_ts) FROM {spark} JOIN {link.stream} ON {link.condition})"
    # Only the newest event time is left in Spark's chain, so only that can be joined to.
    is_path = all(link.to == before for before, link in zip(names, chain, strict=False))
    text = f"SELECT {ids} FROM {text}"
    return Query(name, text, spark=f"SELECT {ids} FROM {spark}" if is_path else NOWHERE, batch=text)
