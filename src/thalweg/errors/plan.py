"""Plans: what a planner made that no task could run."""

from __future__ import annotations

from thalweg.errors.family import PlanRefusedError


def plan_refused(rule: str, thing: str, plan: str, why: str) -> PlanRefusedError:
    return PlanRefusedError(
        f"plan {plan} is refused: {thing} {why}",
        detail=f"That is what the rule {rule} of the planner has to see to.",
        hint="This is a mistake of Thalweg: batches go on under the plan before it. Drop what was created last, "
        "and report it.",
    )
