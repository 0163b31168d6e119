"""Taxi trips of a city, like those of the DEBS 2015 Grand Challenge, on which the Holistic paper measures.

The data themselves cannot be had here; this is a generated likeness. Holistic (Table 3) tells of 62,500 to 8.1M
groups: taken as the cells of a grid of 250 x 250, and routes between them. Trips begin and end near few busy places.

    debs           all three
    debs/routes    the ten most frequent routes of the last 30 minutes (Query 1 of the challenge)
    debs/fares     the median of fare and tip by area of the last 15 minutes (from Query 2)
    debs/vacant    the taxis that became free in an area in the last 30 minutes (from Query 2)

Query 2 divides the second by the third, of taxis that have no new passenger yet: a join of two aggregates, which
Thalweg's SQL does not have. Holistic does not say by how much windows slide.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from benchmarks.workloads.model import Query, Stream, Workload, over_one
from benchmarks.workloads.windowed import NOWHERE, Windowed

NAMES = {
    "debs": "like the taxi trips of DEBS 2015: top routes, median fares and vacant taxis by area, sliding by 5 min",
    "debs/routes": "the first of the three: the ten most frequent of millions of routes",
    "debs/fares": "the second: a median, which cannot be put together from partial ones",
    "debs/vacant": "the third: different taxis by area",
}

START_US = 1_700_000_100_000_000
DELAY_SECONDS = 1
ROWS_PER_FILE = 50_000
ROWS_PER_SECOND = 200
"""Of event time: 50,000 rows are 250 s. (In the challenge's data some 5 a second.)"""
SIDE = 250
"""Cells along an edge of the city: 62,500 areas."""
TAXIS = 13_000
PLACES = 40
"""Busy ones, Zipf 1.0 by how busy they are."""
SPREAD = 5.0
"""Cells, of trips around a place."""
ANYWHERE = 0.1
"""The share of trips that begin (and of those that end) anywhere."""
SLIDE = 5 * 60
SCHEMA = pa.schema(
    [
        ("ts", pa.timestamp("us", tz="UTC")),
        ("taxi", pa.int32()),
        ("pickup", pa.int32()),
        ("dropoff", pa.int32()),
        ("fare", pa.float64()),
        ("tip", pa.float64()),
    ]
)


def named(name: str) -> Workload | None:
    if name not in NAMES:
        return None
    return over_one(TRIPS, name, QUERIES, ROWS_PER_FILE)


def rows(number: int) -> pa.Table:
    """Of one file."""
    rng = np.random.default_rng((3, number))
    ids = np.arange(number * ROWS_PER_FILE, (number + 1) * ROWS_PER_FILE, dtype=np.int64)
    columns = {
        "ts": pa.array(START_US + ids * 1_000_000 // ROWS_PER_SECOND, SCHEMA.field("ts").type),
        "taxi": rng.integers(0, TAXIS, ROWS_PER_FILE, dtype=np.int32),
        "pickup": cells(rng),
        "dropoff": cells(rng),
        # Quarters, of which many come only once: a median needs them all.
        "fare": np.round(rng.gamma(2, 6, ROWS_PER_FILE) * 4 + 10) / 4,
        "tip": np.round(rng.gamma(1, 2, ROWS_PER_FILE) * 4) / 4,
    }
    return pa.table(columns, schema=SCHEMA)


def cells(rng: np.random.Generator) -> np.ndarray:
    places = np.random.default_rng(3).uniform(0.1, 0.9, (PLACES, 2)) * SIDE
    busy = 1 / np.arange(1, PLACES + 1)
    near = places[rng.choice(PLACES, ROWS_PER_FILE, p=busy / busy.sum())]
    near = np.clip(near + rng.normal(0, SPREAD, (ROWS_PER_FILE, 2)), 0, SIDE - 1).astype(np.int32)
    anywhere = rng.integers(0, SIDE, (ROWS_PER_FILE, 2), dtype=np.int32)
    x, y = np.where(rng.random((ROWS_PER_FILE, 1)) < ANYWHERE, anywhere, near).T
    return (x * SIDE + y).astype(np.int32)


TRIPS = Stream("trips", SCHEMA, "ts", DELAY_SECONDS, rows)


def top(query: Query, order: str, rows_of_window: int) -> Query:
    """The first rows of each window; neither Spark in append mode nor, as written here, Flink can say it."""
    ranked = f"row_number() OVER (PARTITION BY start ORDER BY {order}) <= {rows_of_window}"
    return replace(
        query,
        text=f"{query.text} ORDER BY {order} LIMIT {rows_of_window}",
        batch=f"SELECT * FROM ({query.batch}) QUALIFY {ranked}",
        spark=NOWHERE,
        flink=NOWHERE,
    )


ROUTES = Windowed(TRIPS, {"pickup": "pickup", "dropoff": "dropoff"}, {"rides": "count(*)"}, 30 * 60, SLIDE)
FARES = Windowed(TRIPS, {"pickup": "pickup"}, {"profit": "median(fare + tip)"}, 15 * 60, SLIDE)
VACANT = Windowed(TRIPS, {"dropoff": "dropoff"}, {"taxis": "count(DISTINCT taxi)"}, 30 * 60, SLIDE)
QUERIES = (
    top(ROUTES.query("routes"), "rides DESC, pickup, dropoff", 10),
    FARES.query("fares", flink=NOWHERE),
    VACANT.query("vacant", spark=NOWHERE),
)
