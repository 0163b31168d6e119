"""The program that recovery tests kill: fixed feeds through fixed queries, in a process of its own.

    python -m tests.recovery.program STATE_DIR OUT_DIR SEED

The partitioning and the orders of joins change at every batch boundary. Run again after a kill it defines the same
streams and queries, goes on, and in the end writes every query's results as a file in OUT_DIR.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from tests.support.randomly import RandomQuery, Shape, random_feed, random_queries
from tests.support.unsettled import unsettle

import thalweg
from thalweg.testing.oracle import Feed

PAIR = "ON e.k = o.k AND e.gemPackID = o.gemPackID WITHIN 2 SECONDS"
JOINS = {
    "joined": f"SELECT e.k, e.ts AS left_ts, o.ts AS right_ts, o.gemPackID FROM events e JOIN others o {PAIR}",
    "joined_windows": f"SELECT e.k, count(*) AS n, max(o.ts) AS last, window.end AS until FROM events e "
    f"JOIN others o {PAIR} GROUP BY e.k, window(e.ts, '5 seconds')",
    "chain": "SELECT a.k, a.ts AS first_ts, o.ts AS middle_ts, b.ts AS last_ts FROM events a "
    "JOIN others o ON a.k = o.k WITHIN 1 SECOND JOIN events b ON o.gemPackID = b.gemPackID WITHIN 1 SECOND",
    "unpaired": f"SELECT e.k, e.ts AS left_ts, o.ts AS right_ts FROM events e LEFT JOIN others o {PAIR}",
}
RAW = {
    "middle_of_packs": "SELECT gemPackID, percentile(k, 0.5) AS m, count(*) AS n, window.end AS until FROM events "
    "GROUP BY gemPackID, window(ts, '10 seconds', '5 seconds')",
    "middle_of_keys": "SELECT k, percentile(length(gemPackID), 0.5) AS m, window.end AS until FROM events "
    "GROUP BY k, window(ts, '10 seconds')",
}
"""Their rows go elsewhere in every batch, or nowhere."""
OWN = {
    "totals": "SELECT gemPackID, own_total(k) AS s, window.end AS until FROM events "
    "GROUP BY gemPackID, window(ts, '8 seconds', '4 seconds')",
}
"""`own_total` is defined by this program, and is what Spark calls sum."""


def feeds(seed: int) -> list[Feed]:
    """Of two streams, a file for every batch of each."""
    shape = Shape(batches=14, rows=60)
    return [random_feed(seed, shape), random_feed(seed + 1, shape, stream="others")]


def queries(seed: int) -> list[RandomQuery]:
    """Over the first stream; some joins of the two are run beside them."""
    return list(random_queries(seed, feeds(seed)[0], 5))


COPIED = ("q0", "q1", "joined")
"""These have a twin that writes files."""


def define_total() -> None:
    """A sum, NULL where there is nothing to add."""

    def added(one: int | None, other: int | None) -> int | None:
        return other if one is None else one if other is None else one + other

    def update(state: int | None, batch: pa.RecordBatch) -> int | None:
        return added(state, pc.sum(batch.column(0)).as_py())

    thalweg.aggregate("own_total", lambda: None, update, added, lambda state: state, returns="bigint")


def main(state_dir: Path, out_dir: Path, seed: int) -> None:
    session = thalweg.connect(state_dir, slots=3, master="local[2]")
    unsettle(session, seed)
    for feed in feeds(seed):
        inputs = state_dir.parent / f"input-{feed.stream}"
        write(feed, inputs)
        source = thalweg.files(f"{inputs}/*.parquet", max_files_per_batch=1)
        session.create_stream(feed.stream, source, time=feed.time, watermark=f"{feed.delay_us} microseconds")
    define_total()
    texts = {**{q.name: q.select for q in queries(seed)}, **RAW, **OWN, **JOINS}
    handles = {name: session.create_query(name, select) for name, select in texts.items()}
    for name in COPIED:
        session.create_query(f"copy_{name}", texts[name], thalweg.to_files(out_dir / f"copy_{name}"))
    session.run_available()
    out_dir.mkdir(exist_ok=True)
    for name, handle in handles.items():
        pq.write_table(handle.results(), out_dir / f"{name}.parquet")
    for name in COPIED:
        tables = [pq.read_table(part) for part in sorted((out_dir / f"copy_{name}").glob("part-*.parquet"))]
        schema = handles[name].results().schema
        pq.write_table(pa.concat_tables([schema.empty_table(), *tables]), out_dir / f"copy_{name}.parquet")
    session.stop()


def write(feed: Feed, inputs: Path) -> None:
    """A file for every batch, each whole or not there."""
    inputs.mkdir(exist_ok=True)
    for number, table in enumerate(feed.batches):
        path = inputs / f"{number:04d}.parquet"
        if not path.exists():
            pq.write_table(table, path.with_name(f".{path.name}"))
            path.with_name(f".{path.name}").rename(path)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
