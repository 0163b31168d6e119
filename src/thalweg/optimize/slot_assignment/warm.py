"""Loads the compiled kernels, or compiles them where no process of this machine has done so."""

from __future__ import annotations

import numpy as np

from thalweg.optimize.deadline import Deadline
from thalweg.optimize.slot_assignment.bounds import spectral_bound
from thalweg.optimize.slot_assignment.goal import make_goal
from thalweg.optimize.slot_assignment.problem import Problem
from thalweg.optimize.slot_assignment.reduce import halved
from thalweg.optimize.slot_assignment.search import search

_warm = False


def warm_kernels() -> bool:
    """Runs every kernel on a few key groups. Whether that had been done before, in this process."""
    global _warm
    known, _warm = _warm, True
    if not known:
        names = [("stream", name) for name in "abc"]
        pairs = [(names[0], names[1]), (names[0], names[2])]
        tiny = Problem(2, dict.fromkeys(names, np.ones(3)), dict.fromkeys(pairs, np.eye(3)), lat_proc=1.0)
        goal, deadline = make_goal(tiny, "saspar"), Deadline.after(60.0)
        start = np.arange(goal.graph.nodes) % 2
        search(goal.graph, [start], deadline, 0, patience=1)
        goal.returned(goal.settle(start, deadline, 0), start, deadline)
        make_goal(tiny, "copies").returned(start, 1 - start, deadline)
        spectral_bound(goal.graph, deadline.left)
        halved(goal.graph, 0)
    return known
