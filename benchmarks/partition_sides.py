"""One side of the partitioning benchmark: rows shipped whole through the engine, hashed or optimised.

    python -m benchmarks.partition_sides hashed|optimised --work NAME [--rows N] [--batches N] [--results DIR]

Prints what it measured of every batch as one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import thalweg
from benchmarks.measure import DATA
from benchmarks.result import CORES

SLOTS = 4
SECONDS = 10
"""Of event time in a batch."""
WINDOW = "window(ts, '20 seconds')"

Columns = dict[str, np.ndarray]


def packs(rng: np.random.Generator, n: int, users: int) -> Columns:
    """Every gem pack belongs to one user, five each."""
    user = rng.integers(0, users, n)
    pack = (user * 5 + rng.integers(0, 5, n)) * 7919 % 10_000_019
    return {"userID": user * 104_729 % 10_000_019, "gemPackID": pack}


def cities(rng: np.random.Generator, n: int, moved: bool = False) -> Columns:
    """Users buy in the shops of their city: neither lies inside the other. Later, shops have moved."""
    city = rng.integers(0, 16, n)
    home = (city * 7 + 5) % 16 if moved else city
    return {
        "userID": (city * 5 + rng.integers(0, 5, n)) * 7919,
        "shopID": (home * 4 + rng.integers(0, 4, n)) * 104_729,
    }


def lineitems(rng: np.random.Generator, n: int) -> Columns:
    """TPC-H in small: four items an order, ten open orders a customer."""
    orders = rng.integers(0, max(1, n // 4), n)
    customer = orders * 2_654_435_761 % 1_000_003 % max(1, n // 40)
    return {"l_orderkey": orders * 32 + 7, "o_custkey": customer}


def independent(rng: np.random.Generator, n: int) -> Columns:
    return {"a": rng.integers(0, 20_000, n), "b": rng.integers(0, 20_000, n)}


def columns_of(work: str, seed: int, n: int, late: bool) -> Columns:
    """One batch of a workload; `late`: in the second half of the stream."""
    rng = np.random.default_rng(seed)
    if work == "packs":
        return packs(rng, n, users=20_000)
    if work in ("cities", "shift"):
        return cities(rng, n, moved=work == "shift" and late)
    return lineitems(rng, n) if work == "tpch" else independent(rng, n)


WORKS = {
    "packs": "gemPackID inside userID, 20,000 users",
    "cities": "80 users and 64 shops in 16 cities",
    "tpch": "l_orderkey inside o_custkey",
    "independent": "two independent keys",
    "shift": "80 users and 64 shops in 16 cities, other ones from half way on",
}


def make_files(work: str, rows: int, batches: int) -> Path:
    """A Parquet file for each batch, made once."""
    folder = DATA / f"partitioning-{work}-{rows}-{batches}"
    if not folder.exists():
        making = folder.with_name(f"{folder.name}.part")
        shutil.rmtree(making, ignore_errors=True)
        making.mkdir(parents=True)
        for batch in range(batches):
            rng = np.random.default_rng(1_000 + batch)
            times = (batch * SECONDS * 1_000_000) + np.arange(rows) * (SECONDS * 1_000_000) // rows
            columns = columns_of(work, batch, rows, late=batch * 2 >= batches)
            table = {name: pa.array(values.astype(np.int64)) for name, values in columns.items()}
            table["price"] = pa.array(rng.integers(1, 100_000, rows) / 100)
            table["ts"] = pa.array(times, pa.timestamp("us", "UTC"))
            pq.write_table(pa.table(table), making / f"{batch:05d}.parquet")
        making.rename(folder)
    return folder


def queries(work: str) -> list[str]:
    """A median by every key, and one by both."""
    keys = list(columns_of(work, 0, 1, late=False))
    texts = []
    for by in (*([k] for k in keys), *([keys] if work in ("packs", "tpch") else [])):
        names = ", ".join(by)
        texts.append(
            f"SELECT {names}, percentile(price, 0.5) AS median, window.end AS until FROM s GROUP BY {names}, {WINDOW}"
        )
    return texts


def run(side: str, work: str, rows: int, batches: int, results: Path | None) -> dict[str, Any]:
    folder = make_files(work, rows, batches)
    with tempfile.TemporaryDirectory(dir=DATA) as state:
        every = None if side == "hashed" else "3 seconds"
        session = thalweg.connect(Path(state) / "state", master=f"local[{CORES}]", slots=SLOTS, repartition=every)
        source = thalweg.files(f"{folder}/*.parquet", max_files_per_batch=1)
        session.create_stream("s", source, time="ts", watermark="1 second")
        whole = {"partitioner": "hash"}  # by itself the engine combines where values come again
        handles = [session.create_query(f"q{i}", text, options=whole) for i, text in enumerate(queries(work))]
        copies: list[float] = []
        switches: list[int] = []
        runner = session._parts.runner
        commit = runner.adaptations.commit

        def watched(learned: Any) -> None:
            commit(learned)
            report = runner.adaptations.partitioning_report(runner.manifest.measured)
            copies.append(report.streams["s"].copies)
            switches.append(report.switches)

        runner.adaptations.commit = watched  # type: ignore[method-assign]
        session.run_available()
        reports = [r for r in runner.reports if r.rows]
        if results is not None:
            for i, handle in enumerate(handles):
                (results / f"q{i}").mkdir(parents=True)
                pq.write_table(handle.results(), results / f"q{i}" / "part.parquet")
        text = session.explain()
        session.stop()
    return {
        "seconds": [r.seconds for r in reports],
        "bytes": [r.sent_bytes for r in reports],
        "copies": copies[: len(reports)],
        "switches": switches[: len(reports)],
        "rows": rows,
        "explain": text,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("side", choices=["hashed", "optimised"])
    parser.add_argument("--work", choices=list(WORKS), required=True)
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--batches", type=int, default=24)
    parser.add_argument("--results", type=Path)
    options = parser.parse_args(arguments)
    measured = run(options.side, options.work, options.rows, options.batches, options.results)
    print("RESULT " + json.dumps(measured))


if __name__ == "__main__":
    main()
