"""The mixed integer program of SASPAR (Section II-A), solved by HiGHS.

A binary for each node and slot (Eq. 1), one slot for each node (Eq. 2). Route keys that must have one assignment are
one node (Eq. 3). The matrix is passed as arrays.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import highspy
import numpy as np
from numpy.typing import NDArray

from thalweg.optimize.deadline import Deadline
from thalweg.optimize.slot_assignment.correlation import count_rows
from thalweg.optimize.slot_assignment.graph import SLACK, AssignmentGraph, Floats, Ids, Places
from thalweg.optimize.slot_assignment.pivots import Pivots


@dataclass(frozen=True)
class SolvedModel:
    """What the solver came back with."""

    places: Places | None
    """None if it found nothing, not even what it was given."""
    bound: float
    """Proven: nothing is cheaper."""
    proven: bool
    """Whether the assignment is within the gap that was asked for."""


@dataclass
class _ProgramRows:
    """Rows of a constraint matrix, as they are collected: number of row, number of column, factor."""

    count: int = 0
    entries: list[tuple[Ids, Ids, Floats]] = field(default_factory=list)
    lower: list[Floats] = field(default_factory=list)
    upper: list[Floats] = field(default_factory=list)

    def add(self, count: int, lower: float, upper: float, *entries: tuple[Ids, Ids, Floats]) -> None:
        """`count` rows with the same bounds; their entries number them from 0."""
        for row, column, factor in entries:
            self.entries.append((self.count + row.ravel(), column.ravel(), factor.ravel()))
        self.lower.append(np.full(count, lower))
        self.upper.append(np.full(count, upper))
        self.count += count

    def by_row(self) -> tuple[NDArray[np.int32], NDArray[np.int32], Floats]:
        """Start of each row, column and factor of each entry."""
        row, column, factor = (np.concatenate(parts) for parts in zip(*self.entries, strict=True))
        order = np.lexsort((column, row))
        start = np.searchsorted(row[order], np.arange(self.count)).astype(np.int32)
        return start, column[order].astype(np.int32), factor[order]


@dataclass(frozen=True)
class Model:
    """The program of a graph, or of the true objective "saspar": costs, bounds, rows."""

    graph: AssignmentGraph
    cost: Floats
    lower: Floats
    upper: Floats
    rows: _ProgramRows
    order: Ids
    """The nodes, heaviest first: the order in which symmetry is broken."""

    @property
    def binaries(self) -> int:
        return self.graph.nodes * self.graph.slots


def size_of(graph: AssignmentGraph) -> int:
    """Binaries of the model, which can be told before it is built."""
    return graph.nodes * graph.slots


def linear_model(graph: AssignmentGraph) -> Model:
    """The program of the graph's cost: common rows of two nodes are shipped twice where only one of them is."""
    heads = np.repeat(np.arange(graph.nodes), np.diff(graph.edge_start))
    once = heads < graph.edge_node
    tail, head, shared = heads[once], graph.edge_node[once], graph.edge_rows[once]
    # The edges of one node to one other class are a bundle. A row for each edge would be tighter, but far slower.
    _, bundle = np.unique(tail * (graph.layer.max(initial=0) + 1) + graph.layer[head], return_inverse=True)
    bundles = int(bundle.max(initial=-1)) + 1
    owner = np.zeros(bundles, np.int64)
    owner[bundle] = tail
    whole = count_rows(bundle, shared, bundles)
    extra = graph.freight - count_rows(head, shared, graph.nodes)
    rows = _ProgramRows()
    each = np.arange(bundles)
    # D[bundle, p] >= what its heads need in p, less all of it where the tail is in p as well: then they share.
    rows.add(
        bundles * graph.slots, 0.0, highspy.kHighsInf,
        (_cells(graph, each), _cells(graph, graph.nodes + each), _factors(graph, np.ones(bundles))),
        (_cells(graph, each), _cells(graph, owner), _factors(graph, whole)),
        (_cells(graph, bundle), _cells(graph, head), _factors(graph, -shared)),
    )  # fmt: skip
    shipped = np.outer(extra, graph.latency).ravel(), np.tile(graph.latency, bundles)
    return _finish(graph, rows, np.concatenate(shipped))


def pivot_model(graph: AssignmentGraph, pivots: Pivots) -> Model:
    """The program of "saspar": M[row, p] is the most that any route key needs of a pivot's key group (Eq. 4, 5)."""
    rows = _ProgramRows()
    owner = np.repeat(np.arange(graph.nodes), np.diff(pivots.start))
    row_of = np.zeros(pivots.cells, np.int64)
    row_of[pivots.cell] = pivots.row
    each = np.arange(pivots.cells)
    # M[row, p] - X[cell, p] >= 0
    rows.add(
        pivots.cells * graph.slots, 0.0, highspy.kHighsInf,
        (_cells(graph, each), _cells(graph, graph.nodes + row_of), _factors(graph, np.ones(len(each)))),
        (_cells(graph, pivots.cell), _cells(graph, owner), _factors(graph, -pivots.rows)),
    )  # fmt: skip
    shipped = np.outer(pivots.loose, graph.latency).ravel(), np.tile(graph.latency, len(pivots.first))
    return _finish(graph, rows, np.concatenate(shipped))


def _cells(graph: AssignmentGraph, things: Ids) -> Ids:
    """The numbers of each thing in each slot."""
    return things[:, None] * graph.slots + np.arange(graph.slots)


def _factors(graph: AssignmentGraph, values: Floats) -> Floats:
    """The value of each thing, in each slot."""
    return np.repeat(values[:, None], graph.slots, axis=1)


def _finish(graph: AssignmentGraph, rows: _ProgramRows, shipped: Floats) -> Model:
    """Adds what all models have: one slot for each node, each stream's fullest slot and cap, broken symmetry."""
    each = np.arange(graph.nodes)
    cells = _cells(graph, each)
    rows.add(graph.nodes, 1.0, 1.0, (_cells(graph, each) // graph.slots, cells, np.ones(cells.shape)))
    owner = np.repeat(each, np.diff(graph.load_start))
    limits = np.arange(graph.streams * graph.slots)
    rows.add(
        len(limits), 0.0, highspy.kHighsInf,
        (limits, len(shipped) + limits // graph.slots, np.ones(len(limits))),
        (_cells(graph, graph.load_stream), cells[owner], _factors(graph, -graph.load_rows)),
    )  # fmt: skip
    cost = np.concatenate([shipped, np.full(graph.streams, graph.price)])
    lower, upper = np.zeros(len(cost)), np.full(len(cost), highspy.kHighsInf)
    lower[len(shipped) :] = [graph.fullest(stream) for stream in range(graph.streams)]
    upper[: cells.size] = 1.0
    upper[len(shipped) :] = graph.most * (1.0 + SLACK)
    order = np.argsort(-graph.weights, kind="stable")
    if graph.uniform:
        for i, node in enumerate(order[: graph.slots - 1]):
            upper[cells[node, i + 1 :]] = 0.0
    return Model(graph, cost, lower, upper, rows, order)


def solve(model: Model, known: Places, *, deadline: Deadline, gap: float, seed: int) -> SolvedModel:
    """Runs HiGHS from a known assignment until the gap is closed or the time is up."""
    solver = highspy.Highs()  # type: ignore[no-untyped-call]
    options: dict[str, bool | int | float | str] = {
        "output_flag": False, "threads": 1, "parallel": "off", "random_seed": seed % (1 << 31),
        "mip_rel_gap": gap, "mip_abs_gap": 0.0,
    }  # fmt: skip
    for name, value in options.items():
        solver.setOptionValue(name, value)
    deadline.limit(solver)
    start, index, factor = model.rows.by_row()
    integral = np.zeros(len(model.cost), np.int32)
    integral[: model.binaries] = 1
    solver.passModel(
        len(model.cost), model.rows.count, len(index), highspy.MatrixFormat.kRowwise.value,
        highspy.ObjSense.kMinimize.value, 0.0, model.cost, model.lower, model.upper,
        np.concatenate(model.rows.lower), np.concatenate(model.rows.upper), start, index, factor, integral,
    )  # fmt: skip
    chosen = np.zeros(model.binaries)
    chosen[np.arange(model.graph.nodes) * model.graph.slots + _relabelled(model, known)] = 1.0
    solver.setSolution(model.binaries, np.arange(model.binaries, dtype=np.int32), chosen)
    solver.run()
    return _read(model, solver)


def _read(model: Model, solver: highspy.Highs) -> SolvedModel:
    info = solver.getInfo()
    bound = float(info.mip_dual_bound)
    if info.primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible:
        return SolvedModel(None, bound, False)
    values = np.array(solver.getSolution().col_value[: model.binaries])
    places = values.reshape(model.graph.nodes, model.graph.slots).argmax(axis=1).astype(np.int64)
    return SolvedModel(places, bound, solver.getModelStatus() == highspy.HighsModelStatus.kOptimal)


def _relabelled(model: Model, places: Places) -> Places:
    """Slots renumbered in the order in which the heaviest nodes come to them, as the broken symmetry wants it."""
    if not model.graph.uniform:
        return places
    seen = dict.fromkeys(places[model.order].tolist())
    label = np.zeros(model.graph.slots, np.int64)
    label[list(seen)] = np.arange(len(seen))
    return label[places]
