"""CLASH's integer program (Section V, Algorithm 2) on HiGHS, in a tight form.

A binary for each candidate order; a variable for each step that can be shared, at least the sum of each target's
orders through it, in place of the paper's rows with large constants: so the relaxation is close to the optimum. An
intermediate store has a variable that its users need and that pulls in its own probe orders; a store that is kept
has one partition attribute. Steps that nobody else can use are part of their order's cost.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import highspy
import numpy as np
from numpy.typing import NDArray

from thalweg.optimize.deadline import Deadline
from thalweg.optimize.probe_orders.candidates import Candidates, Doubt
from thalweg.optimize.probe_orders.forest import Path, ProbeForest, Target
from thalweg.optimize.probe_orders.space import Space

Floats = NDArray[np.float64]
GAP = 1e-7
"""The share of the cost by which an answer may be above the bound and counts as optimal."""
HARD = 3000
"""Columns of a program above which it is first solved among those in use."""
RELAXED = 0.6
"""The share of the time that the linear relaxation may take."""
AMONG_USED = 0.4
"""The share of the time then in which the integer program is solved among the columns that are in use."""
USED = 1e-3
"""What counts as in use of a column of the relaxation."""
FINISHED = 0.9
"""The solver does not look at the clock all the time."""


@dataclass(frozen=True)
class SolvedProgram:
    forest: ProbeForest
    bound: float
    """Proven: nothing that can be made of the candidates is cheaper."""


@dataclass
class Program:
    """Columns and rows as they are collected."""

    space: Space
    candidates: Candidates
    cost: list[float] = field(default_factory=list)
    whole: list[int] = field(default_factory=list)
    """1 for a column that must be 0 or 1."""
    start: list[int] = field(default_factory=list)
    index: list[int] = field(default_factory=list)
    factor: list[float] = field(default_factory=list)
    lower: list[float] = field(default_factory=list)
    upper: list[float] = field(default_factory=list)
    store_column: dict[int, int] = field(default_factory=dict)
    partition_column: dict[tuple[int, int], int] = field(default_factory=dict)
    doubts: list[tuple[int, Doubt, list[int]]] = field(default_factory=list)
    """A column for what a step costs more, the doubt, and the columns of which one is 1 if the step is taken."""

    def column(self, cost: float, whole: bool = False) -> int:
        self.cost.append(cost)
        self.whole.append(int(whole))
        return len(self.cost) - 1

    def row(self, lower: float, upper: float, plus: list[int], minus: list[int]) -> None:
        self.start.append(len(self.index))
        self.index += plus
        self.factor += [1.0] * len(plus)
        self.index += minus
        self.factor += [-1.0] * len(minus)
        self.lower.append(lower)
        self.upper.append(upper)

    def partitions(self, store: int, known: int) -> list[int]:
        """The columns of a store's partitions by one of these attributes."""
        options = self.space.partitions[store]
        if (store, options[0]) not in self.partition_column:
            for attribute in options:
                self.partition_column[store, attribute] = self.column(0.0, whole=True)
            columns = [self.partition_column[store, attribute] for attribute in options]
            if store in self.store_column:
                self.row(0.0, 0.0, columns, [self.store_column[store]])
            else:
                self.row(1.0, 1.0, columns, [])
        return [self.partition_column[store, attribute] for attribute in options if known >> attribute & 1]

    def doubt(self, doubt: Doubt, taken: list[int]) -> int:
        """A column for what a step costs more if it is taken and its store not partitioned by what it knows."""
        extra = self.column(doubt.penalty)
        self.doubts.append((extra, doubt, taken))
        self.row(-highspy.kHighsInf, 0.0, taken, [extra, *self.partitions(doubt.store, doubt.known)])
        return extra


def build(space: Space, candidates: Candidates) -> Program:
    """Orders are the first columns, shared steps the next."""
    program = Program(space, candidates)
    for order in candidates.orders:
        program.column(order.end.cost, whole=True)
    for step in candidates.steps:
        program.column(step.cost)
    stores = {order.target[0] for order in candidates.orders} - space.graphs.keys()
    stores.update(store for order in candidates.orders for store in order.probed)
    for store in sorted(stores):
        program.store_column[store] = program.column(space.charge(store), whole=True)
    _choose_and_share(program)
    _doubt(program)
    return program


def _choose_and_share(program: Program) -> None:
    """One order for each target, if its join is asked for or its store is kept; every store probed is kept.

    A shared step is taken if any target's order through it is: it costs once.
    """
    first, stores = len(program.candidates.orders), program.store_column
    by_target: dict[Target, list[int]] = {}
    # An order needs the columns of its shared steps and of the stores it probes: the key is the target and column.
    needs: dict[tuple[Target, int], list[int]] = {}
    for i, (target, shared, _, probed) in enumerate(program.candidates.orders):
        by_target.setdefault(target, []).append(i)
        for step in shared:
            needs.setdefault((target, first + step[0]), []).append(i)
        for store in probed:
            needs.setdefault((target, stores[store]), []).append(i)
    for (number, _), columns in by_target.items():
        if number in program.space.graphs:
            program.row(1.0, 1.0, columns, [])
        else:
            program.row(0.0, 0.0, columns, [stores[number]])
    for (_, column), columns in needs.items():
        program.row(-highspy.kHighsInf, 0.0, columns, [column])


def _doubt(program: Program) -> None:
    """A step costs more unless its store is partitioned by an attribute it knows; a kept store has one partition.

    A target probes a store once. So of all its steps there that know no attribute but these, no more can do without
    copies than there is of these partitions. That is tighter than a row for each step.
    """
    first = len(program.candidates.orders)
    extras: dict[int, int] = {}
    for step in program.candidates.steps:
        if step.doubt is not None:
            extras[step.number] = program.doubt(step.doubt, [first + step.number])
    # Target and store -> for each step there: its extra column, what it knows, and the target's orders through it.
    probes: dict[tuple[Target, int], dict[tuple[int, int], list[int]]] = {}
    alone: dict[tuple[Target, Doubt], list[int]] = {}
    for i, (target, shared, end, _) in enumerate(program.candidates.orders):
        for step in shared:
            if step.doubt is not None:
                at = probes.setdefault((target, step.doubt.store), {})
                at.setdefault((extras[step.number], step.doubt.known), []).append(i)
        for doubt in end.doubts:
            alone.setdefault((target, doubt), []).append(i)
    for (target, doubt), columns in alone.items():
        extra = program.doubt(doubt, columns)
        probes.setdefault((target, doubt.store), {})[extra, doubt.known] = columns
    for (_, store), steps in probes.items():
        for known in {known for _, known in steps}:
            within = [(extra, columns) for (extra, mask), columns in steps.items() if not mask & ~known]
            if len(within) > 1:
                taken = [column for _, columns in within for column in columns]
                instead = [*(extra for extra, _ in within), *program.partitions(store, known)]
                program.row(-highspy.kHighsInf, 0.0, taken, instead)


def solve(program: Program, known: ProbeForest, deadline: Deadline) -> SolvedProgram:
    """The optimum, or the best that is found until the deadline, from a known solution.

    The relaxation comes first: it is nearly integral, gives the bound, and shows which columns a better solution than
    the best known one cannot have. The integer program is then solved without them.
    """
    matrix = Matrix.of(program)
    values, duals, finished = matrix.relax(deadline.share(RELAXED))
    rounded = _rounded(program, values) if finished else known
    known = rounded if rounded.cost < known.cost else known
    bound, reduced = matrix.lagrangian(duals)
    return _branch(program, matrix, SolvedProgram(known, min(bound, known.cost)), values, reduced, deadline)


def _branch(
    program: Program, matrix: Matrix, known: SolvedProgram, values: Floats, reduced: Floats, deadline: Deadline
) -> SolvedProgram:
    """The integer program with all columns that may matter; of a large one, first with those that are in use."""
    best, bound = known.forest, known.bound
    for whole in (False, True) if len(program.cost) > HARD else (True,):
        if is_close(best.cost, bound) or deadline.over:
            break
        start = _values(program, best)
        used = (values > USED) | (start > 0.0)
        # A solution with a column that is left out for good costs at least as much as the best one known.
        stay = used | (reduced <= best.cost - bound + GAP * best.cost) if whole else used
        found = matrix.integral(stay, start, deadline.share(FINISHED if whole else FINISHED * AMONG_USED))
        if found is not None:
            better = _rounded(program, found[0])
            if whole:
                bound = max(bound, min(found[1], best.cost))
            best = better if better.cost < best.cost else best
    return SolvedProgram(best, min(bound, best.cost))


def is_close(cost: float, bound: float) -> bool:
    """Whether a solution of this cost counts as optimal."""
    return cost - bound <= GAP * abs(cost)


@dataclass(frozen=True)
class Matrix:
    """The program as arrays, rows one after the other."""

    cost: Floats
    whole: NDArray[np.int32]
    start: NDArray[np.int64]
    index: NDArray[np.int64]
    factor: Floats
    lower: Floats
    upper: Floats

    @classmethod
    def of(cls, program: Program) -> Matrix:
        return cls(
            np.array(program.cost), np.array(program.whole, np.int32),
            np.array([*program.start, len(program.index)]), np.array(program.index, np.int64),
            np.array(program.factor), np.array(program.lower), np.array(program.upper),
        )  # fmt: skip

    @property
    def scale(self) -> float:
        """Costs are passed around 1: the solver's tolerances are absolute."""
        return float(self.cost.max(initial=0.0)) or 1.0

    def solver(self, deadline: Deadline, whole: bool) -> highspy.Highs:
        solver = highspy.Highs()  # type: ignore[no-untyped-call]
        options: dict[str, bool | int | float | str] = {
            "output_flag": False, "threads": 1, "parallel": "off", "random_seed": 0,
            "mip_rel_gap": GAP / 10.0, "mip_abs_gap": 0.0,
            # Solutions come from search and from the relaxation: what is left to do is mostly to prove.
            "mip_heuristic_run_feasibility_jump": False, "mip_heuristic_effort": 0.0,
            "mip_heuristic_run_rins": False, "mip_heuristic_run_rens": False,
            "mip_heuristic_run_root_reduced_cost": False, "mip_allow_restart": False, "mip_detect_symmetry": False,
        }  # fmt: skip
        for name, value in options.items():
            solver.setOptionValue(name, value)
        deadline.limit(solver)
        columns = len(self.cost)
        solver.passModel(
            columns, len(self.lower), len(self.index), highspy.MatrixFormat.kRowwise.value,
            highspy.ObjSense.kMinimize.value, 0.0, self.cost / self.scale, np.zeros(columns), np.ones(columns),
            self.lower, self.upper, self.start[:-1].astype(np.int32), self.index.astype(np.int32), self.factor,
            self.whole if whole else np.zeros(columns, np.int32),
        )  # fmt: skip
        return solver

    def relax(self, deadline: Deadline) -> tuple[Floats, Floats, bool]:
        """The linear relaxation: values of columns, prices of rows, and whether it was solved in time."""
        solver = self.solver(deadline, whole=False)
        # Presolve takes longer than it saves; and without it, prices are there even if the time is up.
        solver.setOptionValue("presolve", "off")
        solver.run()
        solution = solver.getSolution()
        duals = np.array(solution.row_dual) * self.scale if solution.dual_valid else np.zeros(len(self.lower))
        finished = solver.getModelStatus() == highspy.HighsModelStatus.kOptimal
        return np.array(solution.col_value), duals, finished

    def lagrangian(self, duals: Floats) -> tuple[float, Floats]:
        """A bound that holds whatever the prices are, so it needs no trust in tolerances; and reduced costs."""
        # A row that is bounded on one side only has a price of one sign.
        duals = np.where(np.isinf(self.lower), np.minimum(duals, 0.0), duals)
        rows = np.repeat(np.arange(len(self.lower)), np.diff(self.start))
        reduced = self.cost - np.bincount(self.index, self.factor * duals[rows], len(self.cost))
        sides = np.where(duals > 0.0, np.where(np.isinf(self.lower), 0.0, self.lower), self.upper)
        return float(duals @ sides + np.minimum(reduced, 0.0).sum()), reduced

    def integral(self, stay: NDArray[np.bool_], start: Floats, deadline: Deadline) -> tuple[Floats, float] | None:
        """The integer program without some columns: values of all columns, and its bound."""
        small = self._without(stay)
        solver = small.solver(deadline, whole=True)
        if not start[~stay].any():
            columns = len(small.cost)
            solver.setSolution(columns, np.arange(columns, dtype=np.int32), start[stay])
        solver.run()
        info = solver.getInfo()
        if info.primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible:
            return None
        values = np.zeros(len(self.cost))
        values[stay] = np.array(solver.getSolution().col_value)
        return values, float(info.mip_dual_bound) * small.scale

    def _without(self, stay: NDArray[np.bool_]) -> Matrix:
        rows = np.repeat(np.arange(len(self.lower)), np.diff(self.start))
        entries = stay[self.index]
        # A row without a positive entry says nothing any more, unless something must be reached.
        positive = np.bincount(rows[entries & (self.factor > 0.0)], minlength=len(self.lower)) > 0
        needed = positive | (self.lower > 0.0) | (~np.isinf(self.lower))
        entries &= needed[rows]
        number = np.cumsum(stay) - 1
        counts = np.bincount(rows[entries], minlength=len(self.lower))[needed]
        return Matrix(
            self.cost[stay], self.whole[stay], np.concatenate([[0], np.cumsum(counts)]), number[self.index[entries]],
            self.factor[entries], self.lower[needed], self.upper[needed],
        )  # fmt: skip


def _values(program: Program, forest: ProbeForest) -> Floats:
    """A forest as values of the columns. In place of an order that is no candidate, the best one from where it is."""
    values = np.zeros(len(program.cost))
    first = len(program.candidates.orders)
    for i in chosen_orders(program, forest).values():
        values[i] = 1.0
        for step in program.candidates.orders[i].shared:
            values[first + step.number] = 1.0
    for store, column in program.store_column.items():
        values[column] = float(store in forest.kept)
    for (store, attribute), column in program.partition_column.items():
        options = program.space.partitions[store]
        kept = store not in program.store_column or store in forest.kept
        values[column] = float(kept and forest.partition.get(store, options[0]) == attribute)
    for extra, doubt, columns in program.doubts:
        known = forest.partition.get(doubt.store, program.space.partitions[doubt.store][0])
        if not doubt.known >> known & 1:
            values[extra] = max(values[column] for column in columns)
    return values


def chosen_orders(program: Program, forest: ProbeForest) -> dict[Target, int]:
    """Of each target, the cheapest candidate that follows its order in the forest as far as others share it."""
    best: dict[Target, tuple[int, float, int]] = {}
    for i, order in enumerate(program.candidates.orders):
        leaf = forest.leaves.get(order.target)
        if leaf is None or any(store not in forest.kept for store in order.probed):
            continue
        path = leaf.path
        walked = tuple(step.move for step in order.shared)
        if path[: len(walked)] != walked:
            continue
        cost = order.end.cost + sum(
            doubt.penalty
            for doubt in order.end.doubts
            if not doubt.known >> forest.partition.get(doubt.store, program.space.partitions[doubt.store][0]) & 1
        )
        rank = (-len(walked), cost, i)
        if order.target not in best or rank < best[order.target]:
            best[order.target] = rank
    return {target: rank[2] for target, rank in best.items()}


def _rounded(program: Program, values: Floats) -> ProbeForest:
    """A solution near these values: the stores and partitions that have most, then orders that have most."""
    space = program.space
    forest = ProbeForest(space)
    best: dict[int, float] = {}
    forest.partition.update((store, options[0]) for store, options in space.partitions.items() if options)
    for (store, attribute), column in program.partition_column.items():
        if values[column] > best.get(store, 0.0):
            best[store] = values[column]
            forest.partition[store] = attribute
    kept = {store for store, column in program.store_column.items() if values[column] > 0.5}
    paths: dict[Target, Path] = {}
    for i in np.argsort(-values[: len(program.candidates.orders)], kind="stable"):
        order = program.candidates.orders[i]
        if order.target not in paths and kept.issuperset(order.probed):
            paths[order.target] = order.path
    new = list(dict.fromkeys(number for number, _ in paths if number in space.graphs))
    needed = set(new)
    while new:
        number = new.pop()
        if not space.base[number]:
            probed = {store for start in space.graph(number).starts for store, _ in paths[number, start]}
            new += probed - needed
            needed |= probed
            for start in space.graph(number).starts:
                forest.put((number, start), paths[number, start])
    for store in sorted({store for path in paths.values() for store, _ in path if not space.base[store]} & needed):
        forest.keep(store)
    return forest
