"""The game of SASPAR's Listing 1: gem packs that players buy and that are advertised to them.

    purchases(userID, gemPackID, price, ts)    ads(userID, gemPackID, ts)

SASPAR gives the two queries and neither data nor group counts: these are generated. The keys are correlated, which is
what its shared partitioning lives on (Fig. 1): a player has one pack that most of his purchases and ads are about.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache, partial
from itertools import count, islice

import numpy as np
import pyarrow as pa

from benchmarks.workloads.model import Query, Stream, Workload
from benchmarks.workloads.windowed import Windowed

NAMES = {"game/N": "SASPAR's Listing 1, purchases and ads: N (up to 64) sums by pack, player or both, and joins"}

START_US = 1_700_000_000_000_000
DELAY_SECONDS = 1
ROWS_PER_FILE = 50_000
ROWS_PER_SECOND = 10_000
"""Of event time, of each stream."""
USERS = 100_000
"""As many as an ad has purchases within 5 s of it: each finds about one by the same player."""
PACKS = 500
FAITHFUL = 0.8
"""The share of rows that are about the player's own pack; the others are about any."""
PACK_SKEW = 1.0
"""Zipf's exponent of how many players a pack has: the most popular one has 15 % of them."""
COLUMNS = [("userID", pa.int64()), ("gemPackID", pa.int64())]
TIME = ("ts", pa.timestamp("us", tz="UTC"))


def named(name: str) -> Workload | None:
    found = re.fullmatch(r"game/(\d+)", name)
    return None if found is None or not 1 <= int(found[1]) <= MOST else game(int(found[1]))


def game(n: int) -> Workload:
    return Workload(
        name=f"game/{n}",
        streams=(PURCHASES, ADS) if n > 1 else (PURCHASES,),
        queries=tuple(islice(queries(), n)),
        rows_per_file=ROWS_PER_FILE,
        files_per_batch=5,
        data="game",
    )


def rows(stream: str, number: int) -> pa.Table:
    """Of one file."""
    rng = np.random.default_rng((1, len(stream), number))
    ids = np.arange(number * ROWS_PER_FILE, (number + 1) * ROWS_PER_FILE, dtype=np.int64)
    user = rng.integers(0, USERS, ROWS_PER_FILE)
    any_pack = rng.integers(0, PACKS, ROWS_PER_FILE)
    pack = np.where(rng.random(ROWS_PER_FILE) < FAITHFUL, own_packs()[user], any_pack)
    columns = {"userID": user, "gemPackID": pack}
    if stream == "purchases":
        columns["price"] = rng.integers(4, 400, ROWS_PER_FILE) / 4
    columns["ts"] = pa.array(START_US + ids * 1_000_000 // ROWS_PER_SECOND, TIME[1])
    return pa.table(columns)


@cache
def own_packs() -> np.ndarray:
    """Player -> pack."""
    weights = np.arange(1, PACKS + 1) ** -PACK_SKEW
    return np.random.default_rng(1).choice(PACKS, USERS, p=weights / weights.sum())


PURCHASES = Stream(
    "purchases",
    pa.schema([*COLUMNS, ("price", pa.float64()), TIME]),
    "ts",
    DELAY_SECONDS,
    partial(rows, "purchases"),
)
ADS = Stream("ads", pa.schema([*COLUMNS, TIME]), "ts", DELAY_SECONDS, partial(rows, "ads"))

# -- queries -----------------------------------------------------------------------------------------------

KEYS = (("gemPackID",), ("userID", "gemPackID"), ("userID",))
WINDOWS = ((20, 10), (10, 5), (30, 10), (60, 20))
"""Range and slide in seconds; Listing 1 leaves both open."""
WITHIN = (2, 5, 1, 3)
"""How far apart in seconds two rows of a join may be."""
PREDICATES = ("", "price > 20", "price <= 50", "price > 10 AND price <= 80")


def queries() -> Iterator[Query]:
    """Listing 1's Q1, Q2, Q1 by both keys and by the player; then all of it with other windows and predicates."""
    names = (f"q{i}" for i in count())
    for where in PREDICATES:
        for (size, slide), seconds in zip(WINDOWS, WITHIN, strict=True):
            yield total(next(names), KEYS[0], size, slide, where)
            yield offered(next(names), seconds, where)
            for keys in KEYS[1:]:
                yield total(next(names), keys, size, slide, where)


MOST = (1 + len(KEYS)) * len(WINDOWS) * len(PREDICATES)


def total(name: str, keys: tuple[str, ...], size: int, slide: int, where: str) -> Query:
    """Listing 1, Q1."""
    aggregates = {"revenue": "sum(price)"}
    return Windowed(PURCHASES, {key: key for key in keys}, aggregates, size, slide, where).query(name)


def offered(name: str, seconds: int, where: str) -> Query:
    """Listing 1, Q2."""

    def text(reach: str) -> str:
        condition = f" WHERE {where.replace('price', 'p.price')}" if where else ""
        return (
            "SELECT p.userID, p.gemPackID, p.price FROM purchases p JOIN ads a "
            "ON p.userID = a.userID AND p.gemPackID = a.gemPackID "
            f"AND a.ts BETWEEN p.ts - {reach} AND p.ts + {reach}{condition}"
        )

    plain = text(f"INTERVAL {seconds} SECONDS")
    return Query(name, plain, flink=text(f"INTERVAL '{seconds}' SECOND"), batch=plain)
