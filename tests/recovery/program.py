"""The program that recovery tests kill: a fixed feed through fixed queries, in a process of its own.

    python program.py STATE_DIR OUT_DIR SEED

Run again after a kill it defines the same streams and queries, goes on, and in the end writes every query's
results as a file in OUT_DIR.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import thalweg
from thalweg.testing.randomly import Shape, random_feed, random_queries

BATCHES = 14


def main(state_dir: Path, out_dir: Path, seed: int) -> None:
    feed = random_feed(seed, Shape(batches=BATCHES, rows=60))
    queries = random_queries(seed, feed, 6)
    inputs = state_dir.parent / f"input-{seed}"
    inputs.mkdir(exist_ok=True)
    for number, table in enumerate(feed.batches):
        path = inputs / f"{number:04d}.parquet"
        if not path.exists():
            pq.write_table(table, path.with_name(f".{path.name}"))
            path.with_name(f".{path.name}").rename(path)
    session = thalweg.connect(state_dir, master="local[2]")
    source = thalweg.files(f"{inputs}/*.parquet", max_files_per_batch=1)
    delay = f"{feed.delay_us} microseconds"
    session.create_stream(feed.stream, source, time=feed.time, watermark=delay)
    handles = {q.name: session.create_query(q.name, q.select) for q in queries}
    copies = [f"copy_{q.name}" for q in queries[:2]]
    for name, query in zip(copies, queries, strict=False):
        session.create_query(name, query.select, thalweg.to_files(out_dir / name))
    session.run_available()
    out_dir.mkdir(exist_ok=True)
    for name, handle in handles.items():
        pq.write_table(handle.results(), out_dir / f"{name}.parquet")
    for name, query in zip(copies, queries, strict=False):
        parts = sorted((out_dir / name).glob("part-*.parquet"))
        schema = handles[query.name].results().schema
        tables = [pq.read_table(part) for part in parts]
        pq.write_table(pa.concat_tables([schema.empty_table(), *tables]), out_dir / f"{name}.parquet")
    session.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
