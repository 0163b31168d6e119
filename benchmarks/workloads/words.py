"""Word count as Dalton's paper runs it: windows of 60 s sliding by 1 s over short texts that name a hashtag first.

The Twitter data cannot be had here; these are generated likenesses with the number of keys and the share of the most
frequent one from Dalton's Table 2. As in Dalton, taking the key out of the text is part of the query.

    words            like Elections: 200,000 hashtags, the first in 7.2 % of the rows
    words/t4sa       like T4SA: 450,000, 2.69 %
    words/zipf       synthetic, Zipf 1.5 over 100,000: 38.45 %
    words/uniform    synthetic, 100,000 alike
"""

from __future__ import annotations

from functools import cache, partial

import numpy as np
import pyarrow as pa

from benchmarks import partition_streams
from benchmarks.partition_streams import Distribution
from benchmarks.workloads.model import Stream, Workload
from benchmarks.workloads.windowed import Windowed

NAMES = {
    "words": "word count, 60 s by 1 s, like the Elections tweets: 200,000 hashtags, the first in 7.2 % of rows",
    "words/t4sa": "the same like T4SA: 450,000 hashtags, 2.69 %",
    "words/zipf": "the same, Zipf 1.5 over 100,000 hashtags: 38 %",
    "words/uniform": "the same, 100,000 hashtags alike",
}

START_US = 1_700_000_000_000_000
DELAY_SECONDS = 1
ROWS_PER_FILE = 100_000
ROWS_PER_SECOND = 20_000
"""Of event time. (Dalton, Fig. 12: no partitioner sustains 40,000 on its cluster.)"""
SIZE, SLIDE = 60, 1
"""Dalton, Figures 7 and 8."""
SEED = 4
TAG = 8
"""Letters of a hashtag with its sign."""
SCHEMA = pa.schema([("ts", pa.timestamp("us", tz="UTC")), ("text", pa.string())])


@cache
def distribution(name: str) -> Distribution:
    made = {
        "words": partition_streams.elections,
        "words/t4sa": partition_streams.t4sa,
        "words/zipf": partial(partition_streams.zipf, 1.5),
        "words/uniform": partition_streams.uniform,
    }
    return made[name]()


def named(name: str) -> Workload | None:
    if name not in NAMES:
        return None
    stream = Stream("tweets", SCHEMA, "ts", DELAY_SECONDS, partial(rows, name))
    counted = Windowed(stream, {"tag": f"substring(text, 1, {TAG})"}, {"n": "count(*)"}, SIZE, SLIDE)
    return Workload(
        name=name,
        streams=(stream,),
        queries=(counted.query("count"),),
        rows_per_file=ROWS_PER_FILE,
        files_per_batch=4,
        data=name.replace("/", "-"),
    )


def rows(name: str, number: int) -> pa.Table:
    """Of one file."""
    ids = np.arange(number * ROWS_PER_FILE, (number + 1) * ROWS_PER_FILE, dtype=np.int64)
    keys = partition_streams.draw(distribution(name), ROWS_PER_FILE, seed=number, keys_seed=SEED)
    columns = {
        "ts": pa.array(START_US + ids * 1_000_000 // ROWS_PER_SECOND, SCHEMA.field("ts").type),
        "text": texts(keys),
    }
    return pa.table(columns, schema=SCHEMA)


def texts(keys: np.ndarray) -> pa.Array:
    """`#` and seven letters for a key (35 bits of it: of 450,000 keys some three pairs share theirs), then words."""
    shifts = np.arange(0, 5 * (TAG - 1), 5, dtype=np.uint64)
    letters = (keys.view(np.uint64)[:, None] >> shifts) & np.uint64(31)
    tail = np.frombuffer(b" is what they all talk about today", dtype=np.uint8)
    whole = np.empty((len(keys), TAG + len(tail)), dtype=np.uint8)
    whole[:, 0] = ord("#")
    whole[:, 1:TAG] = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz012345", dtype=np.uint8)[letters.astype(np.intp)]
    whole[:, TAG:] = tail
    offsets = np.arange(len(keys) + 1, dtype=np.int32) * np.int32(whole.shape[1])
    return pa.StringArray.from_buffers(len(keys), pa.py_buffer(offsets), pa.py_buffer(whole.reshape(-1)))
