"""Loads the compiled kernels, or compiles them where no process of this machine has done so."""

from __future__ import annotations

from functools import cache

from thalweg.optimize.deadline import Deadline
from thalweg.optimize.probe_orders.anneal import annealed
from thalweg.optimize.probe_orders.model import JoinQuery, Statistics
from thalweg.optimize.probe_orders.search import Search
from thalweg.optimize.probe_orders.space import Space


@cache
def warm_kernels() -> None:
    """Runs every kernel on a small problem, once in a process: that is not part of anybody's budget."""
    pairs = ("R.a", "S.a"), ("S.b", "T.b")
    stats = Statistics(dict.fromkeys("RST", 2.0), dict.fromkeys(pairs, 0.5), parallelism=2)
    space, deadline = Space((JoinQuery("q", ("R", "S", "T"), pairs),), stats, materialize=True), Deadline.after(60.0)
    search = Search(space, deadline)
    search.begin(space.graphs)
    annealed(space, list(space.graphs), space.intermediates, search.forest, deadline, 1)
