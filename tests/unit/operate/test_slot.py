"""Unit: what one slot keeps."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from thalweg.model.bucket import Section, SliceBucket
from thalweg.model.expr import Expr
from thalweg.model.plan_input import PlanInput, PlanSettings, RunningQuery
from thalweg.model.query import Aggregate, Output, Query
from thalweg.model.stream import Field, Schema, SourceSpec, Stream
from thalweg.model.times import BatchTimes
from thalweg.model.window import Window, node_spans
from thalweg.operate.grouping_state import StoredBucket
from thalweg.operate.slot import run_slot
from thalweg.optimize.planner import make_plan
from thalweg.route.bucket import encode_offsets

SECOND = 1_000_000
STREAM = Stream("s", Schema((Field("ts", "timestamp"), Field("k", "string"))), "ts", 0, SourceSpec("memory", {}))


class Unread:
    def read(self, section: Section) -> pa.Table:
        raise AssertionError("its slice is in a node")


def test_a_node_of_nodes_of_which_the_slot_has_no_rows_is_empty() -> None:
    """The nodes are in other slots. A bucket that this one shares with them says that there are slices."""
    window, key = Window(60 * SECOND, SECOND), Expr('"k"', "string", ("k",))
    outputs = (Output("n", Expr("a0", "bigint", ("a0",))),)
    query = Query("q", "", "s", outputs, None, window, (key,), (Aggregate("count_all", (), "bigint"),))
    plan = make_plan(PlanInput([RunningQuery("q", query)], {"s": STREAM}, settings=PlanSettings(2, 16)))
    (grouping,) = plan.groupings.values()
    narrow, wide, *_ = node_spans(grouping.slice_us, grouping.windows)

    bucket = SliceBucket(
        section=Section("f", grouping.id, 0, 0, 1, 0),
        relation=grouping.id,
        level=0,
        batch_from=0,
        batch_to=0,
        place=0,
        spans=((0, grouping.slice_us),),
        offsets=encode_offsets(np.arange(17, dtype=np.int32)),
    )
    shared = StoredBucket(bucket, Unread(), [(0, 8)], False)
    nodes = {grouping.id: frozenset((start, -narrow) for start in range(0, wide, narrow))}
    clock = BatchTimes(9, {"s": wide - SECOND}, {"s": wide})
    result = run_slot(plan, clock, {}, {grouping.id: [shared]}, {}, nodes)
    assert [(kept.span, kept.starts, kept.table.num_rows) for kept in result.kept] == [(-wide, (0,), 0)]
