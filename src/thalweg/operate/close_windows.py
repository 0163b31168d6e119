"""Windows that close, from what a slot holds of them: kept rows, slices, or both.

What fails, fails for its query alone, and for rows of the query's own windows alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from thalweg.model.failure import Failing, Failures, OfColumn, OfPartial, OfQuery
from thalweg.model.plan import Plan, WindowedQuery, queries_of
from thalweg.model.trouble import finishing
from thalweg.operate.finish import Closing, Counting, finish, first_rows
from thalweg.operate.finish_rows import Finished, add_partials, finish_rows
from thalweg.operate.kept_rows import KeptRows
from thalweg.operate.merge_slices import SliceTable


@dataclass
class Closed:
    results: list[tuple[str, pa.Table]] = field(default_factory=list)
    counted: Counter[str] = field(default_factory=Counter)
    """query -> the rows of its result, where nobody takes them."""
    failures: Failures = field(default_factory=dict)


def close_slices(
    plan: Plan, closing: Closing, slices: Mapping[str, Sequence[SliceTable]], uncollected: Collection[str]
) -> Closed:
    made = _close_slices(plan, closing, slices, uncollected)
    _fail_alike(closing, made.failures)
    return made


def close_rows(
    plan: Plan,
    closing: Closing,
    slices: Mapping[str, Sequence[SliceTable]],
    rows: KeptRows,
    batch_from: int,
    uncollected: Collection[str],
) -> Closed:
    """Windows that hold kept rows. Rows are looked at together for all closings, unless something fails: a query
    may fail for rows of its own windows, and not for those that came before it did."""
    if not rows.failures:
        made = _add_up(plan, closing, slices, rows, batch_from, uncollected)
        if not rows.failures:
            _fail_alike(closing, made.failures)
            return made
    alone = rows.alone(closing.stretches_of_rows, batch_from)
    made = _add_up(plan, closing, slices, alone, batch_from, uncollected)
    made.failures.update(_of_members(plan, closing, alone))
    _fail_alike(closing, made.failures)
    return made


def _close_slices(
    plan: Plan, closing: Closing, slices: Mapping[str, Sequence[SliceTable]], uncollected: Collection[str]
) -> Closed:
    made, counting = Closed(), Counting(uncollected)
    if not slices[closing.members[0].main.grouping]:
        return made
    with finishing(closing.queries):
        finished = finish(closing, plan.groupings, slices, made.failures, counting)
    _count(counting.rows, closing, made)
    for member in closing.members:
        table = finished.get(member.query)
        if table is not None and table.num_rows:
            _give(table, member, closing, made)
    return made


def _add_up(
    plan: Plan,
    closing: Closing,
    slices: Mapping[str, Sequence[SliceTable]],
    rows: KeptRows,
    batch_from: int,
    uncollected: Collection[str],
) -> Closed:
    made, main = Closed(), plan.groupings[closing.members[0].main.grouping]
    if not slices[main.id]:
        with finishing(closing.queries):
            done = finish_rows(closing, main, rows, batch_from, uncollected, made.failures)
        closing = _after(done, closing, made)
        if not closing.members:
            return made
    both = {id_: [*tables] for id_, tables in slices.items()}
    closing = add_partials(plan, closing, rows, batch_from, both)
    of_partials = _close_slices(plan, closing, both, uncollected)
    made.results += of_partials.results
    made.counted.update(of_partials.counted)
    made.failures.update(of_partials.failures)
    return made


def _of_members(plan: Plan, closing: Closing, rows: KeptRows) -> Failures:
    """What failed with the closing's rows concerns its members alone."""
    failures, members = Failures(), {member.query for member in closing.members}
    for failing, why in rows.failures.items():
        concerned = _users(plan, rows, failing)
        failures.update((OfQuery(query), why) for query in sorted(concerned & members))
    return failures


def _users(plan: Plan, rows: KeptRows, failing: Failing) -> set[str]:
    users = rows.stream.users
    match failing:
        case OfColumn(_, column):
            return {*users.get(column, ())}
        case OfPartial(grouping, partial):
            return queries_of(plan, {grouping}) & {*users.get(partial, ())}
        case OfQuery(query):
            return {query}


def _after(done: Finished, closing: Closing, result: Closed) -> Closing:
    """What is left to do."""
    for member, table in done.results:
        if table.num_rows:
            _give(table, member, closing, result)
    _count(done.counted, closing, result)
    return replace(closing, members=done.left)


def _count(rows: Mapping[str, int], closing: Closing, result: Closed) -> None:
    for query, count in rows.items():
        result.counted.update(dict.fromkeys((query, *(m.query for m in closing.alike.get(query, ()))), count))


def _give(table: pa.Table, member: WindowedQuery, closing: Closing, result: Closed) -> None:
    """The rows of a member's windows, to all with the same result; of a LIMIT, only those that may be among the
    first."""
    first = first_rows(table, member, result.failures) if member.limit else table
    if first is not None:
        result.results += ((m.query, first) for m in (member, *closing.alike.get(member.query, ())))


def _fail_alike(closing: Closing, failures: Failures) -> None:
    """What a member cannot do, those with the same result cannot do either."""
    for query, others in closing.alike.items():
        if (reason := failures.get(OfQuery(query))) is not None:
            failures.update({OfQuery(other.query): reason for other in others})
