"""Property: a file with flipped bits never ends the process, and is never read as something else where its format has
the means to know. Arrow IPC has no checksum: there, and in the footer and the page headers of Parquet, only what is
inconsistent is noticed."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.ipc as pa_ipc
import pyarrow.parquet as pq
import pytest
from tests.support.profiles import examples

import thalweg
from thalweg.model.split import Split
from thalweg.model.stream import SourceSpec, Stream
from thalweg.source.read import read
from thalweg.source.schema import parse_schema
from thalweg.testing import LocalSession

DDL = "k bigint, g string, d string, p double, ts timestamp"
STREAM = Stream("s", parse_schema(DDL), "ts", 0, SourceSpec("files", {}))
ROWS = 200
HEADER = 64
"""More than the header of a page takes: it has no checksum."""


def table() -> pa.Table:
    return pa.table(
        {
            "k": pa.array(range(ROWS), pa.int64()),
            "g": [None if i % 7 == 0 else f"text ü {i}" for i in range(ROWS)],
            "d": pa.array([f"d{i % 5}" for i in range(ROWS)]).dictionary_encode(),
            "p": [i / 7 for i in range(ROWS)],
            "ts": pa.array([i * 1_000_000 for i in range(ROWS)], pa.timestamp("us")),
        }
    )


def write_arrow(path: Path, compression: str | None, is_stream: bool) -> None:
    options = pa_ipc.IpcWriteOptions(compression=compression)
    new = pa_ipc.new_stream if is_stream else pa_ipc.new_file
    with new(str(path), table().schema, options=options) as writer:
        writer.write_table(table(), max_chunksize=50)


def write_parquet(path: Path, checksums: bool) -> None:
    pq.write_table(
        table(), path, write_page_checksum=checksums, use_dictionary=False, write_statistics=False, row_group_size=50
    )


WRITERS: dict[str, Callable[[Path], None]] = {
    "arrow": lambda path: write_arrow(path, None, False),
    "arrow lz4": lambda path: write_arrow(path, "lz4", False),
    "arrow stream": lambda path: write_arrow(path, None, True),
    "arrow stream zstd": lambda path: write_arrow(path, "zstd", True),
    "parquet": lambda path: write_parquet(path, False),
    "parquet checked": lambda path: write_parquet(path, True),
}


def flip(data: bytes, rng: random.Random, places: list[tuple[int, int]]) -> bytes:
    damaged = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 3])):
        low, high = rng.choice(places)
        damaged[rng.randrange(low, high)] ^= 1 << rng.randrange(8)
    return bytes(damaged)


def pages(path: Path) -> list[tuple[int, int]]:
    """Where the bodies of pages lie, each column of each group being one page."""
    found = []
    footer = pq.read_metadata(path)
    for group in range(footer.num_row_groups):
        for number in range(footer.num_columns):
            column = footer.row_group(group).column(number)
            start, end = column.data_page_offset + HEADER, column.data_page_offset + column.total_compressed_size
            if end > start:
                found.append((start, end))
    return found


def outcome(path: Path, kind: str) -> str:
    """Reads the file as a task does, and uses what comes out."""
    wanted = {row["k"]: row for row in table().to_pylist()}
    chunks = list(read(Split("s", kind, str(path), 0, -1), STREAM, STREAM.schema.names, None))
    rows = pa.concat_tables([STREAM.schema.to_inner_arrow().empty_table(), *(chunk.table for chunk in chunks)])
    duckdb.connect().from_arrow(rows).project("upper(g), reverse(d), sum(p) OVER (), ts").fetchall()
    rows.to_pylist()
    if any(wanted.get(row["k"]) != row for row in rows.to_pylist()):
        return "changed"
    if rows.num_rows == ROWS:
        return "whole"
    return "set aside" if any(chunk.rejected is not None for chunk in chunks) else "lost"


def damage(directory: Path, seed: int, tries: int) -> dict[str, dict[str, int]]:
    """How files with flipped bits were read."""
    rng, found = random.Random(seed), {}
    for name, write in WRITERS.items():
        path = directory / "damaged"
        write(path)
        data, counts = path.read_bytes(), Counter[str]()
        inside = pages(path) if name == "parquet checked" else [(0, len(data))]
        for _ in range(tries):
            path.write_bytes(flip(data, rng, inside))
            counts[outcome(path, name.partition(" ")[0])] += 1
        found[name] = dict(counts)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_a_damaged_file_neither_crashes_nor_lies(tmp_path: Path, seed: int) -> None:
    program = "import json, sys, pathlib; from tests.property.test_damage import damage; "
    program += "print(json.dumps(damage(pathlib.Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))))"
    command = [sys.executable, "-c", program, str(tmp_path), str(seed), str(examples(150))]
    root = Path(__file__).parents[2]
    ran = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-2_000:]
    found = json.loads(ran.stdout)
    assert found["parquet checked"].keys() <= {"whole", "set aside"}, found
    assert found["parquet checked"]["set aside"] > 0
    for name, counts in found.items():
        assert counts.get("set aside", 0) > 0, (name, found)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_another_stream_goes_on(local: Callable[..., LocalSession], tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    session = local()
    (tmp_path / "good").mkdir()
    (tmp_path / "bad").mkdir()
    write_parquet(tmp_path / "good" / "a.arrow.parquet", True)
    for number, name in enumerate(("arrow", "arrow stream", "arrow lz4") * 3):
        path = tmp_path / "bad" / f"{number}.arrow"
        WRITERS[name](path)
        data = path.read_bytes()
        path.write_bytes(flip(data, rng, [(0, len(data))]))
    for name in ("good", "bad"):
        source = thalweg.files(f"{tmp_path}/{name}/*", format="parquet" if name == "good" else "arrow")
        session.create_stream(name, source, time="ts", watermark="0 seconds", schema=DDL)
    session.create_query("bad", "SELECT upper(g) AS g, count(*) AS n FROM bad GROUP BY g, window(ts, '10 seconds')")
    session.create_query("good", "SELECT g, sum(k) AS s FROM good GROUP BY g, window(ts, '1000 seconds')")
    session.create_query("all", "SELECT k FROM good")
    assert sorted(session.results("all")["k"].to_pylist()) == list(range(ROWS))
    assert session.query("good").status.state == "idle"
    assert session.query("bad").status.state == "idle"
