"""Loads the compiled kernels, or compiles them where no process of this machine has done so."""

from __future__ import annotations

from functools import cache

import numpy as np

from thalweg.optimize.deadline import Deadline
from thalweg.optimize.joins.anneal import annealed
from thalweg.optimize.joins.model import JoinQuery, Statistics
from thalweg.optimize.joins.saddle import WEIGHT, Wanted, approach, make_saddle
from thalweg.optimize.joins.search import Search
from thalweg.optimize.joins.space import Space


@cache
def warm_kernels() -> None:
    """Runs every kernel on a small problem, once in a process: that is not part of anybody's budget."""
    pairs = ("R.a", "S.a"), ("S.b", "T.b")
    stats = Statistics(dict.fromkeys("RST", 2.0), dict.fromkeys(pairs, 0.5), parallelism=2)
    space, deadline = Space((JoinQuery("q", ("R", "S", "T"), pairs),), stats, materialize=True), Deadline.after(60.0)
    search = Search(space, deadline)
    search.begin(space.graphs)
    annealed(space, list(space.graphs), space.intermediates, search.forest, deadline, 1)
    one, first = np.ones(1), np.array([0, 1])
    saddle = make_saddle(one, first, np.zeros(1, np.int64), one, one, np.ones(1, np.bool_))
    approach(saddle, np.zeros(1), one, np.zeros(1), np.zeros(1), WEIGHT, Wanted(deadline, 1.0, 1, 1))
