"""A pipeline whose partitioning changes at every batch boundary, at random: results may not depend on it."""

from __future__ import annotations

import random
from typing import Any

from thalweg.model.partitioning import Partitioning
from thalweg.model.plan import Plan, route_keys, shipped_keys


def unsettle(session: Any, seed: int) -> None:
    """From the first batch on, every batch of the session runs under another partitioning."""
    repartitioner = session._runner.repartitioner
    observe = repartitioner.observe

    def observe_and_propose(plan: Plan, manifest: Any, *measured: Any) -> None:
        observe(plan, manifest, *measured)
        repartitioner.propose(random_partitioning(random.Random(seed * 1000 + manifest.batch), plan))

    repartitioner.observe = observe_and_propose


def random_partitioning(rng: random.Random, plan: Plan) -> Partitioning:
    """Key groups anywhere, some route keys hashed, some led by others."""
    assignment = {
        name: [rng.randrange(plan.slots) for _ in range(plan.groups)]
        for name in sorted(route_keys(plan))
        if rng.random() < 0.8
    }
    follows: dict[str, str] = {}
    for stream in plan.streams.values():
        keys = sorted(shipped_keys(plan, stream))
        leader = rng.choice([*keys, None])
        follows |= {key: leader for key in keys if leader and key != leader and rng.random() < 0.7}
    return Partitioning(assignment, follows, plan.slots)
