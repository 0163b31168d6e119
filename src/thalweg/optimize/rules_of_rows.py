"""What is kept and read of rows, where they go, and the plan of it all."""

from __future__ import annotations

from thalweg.optimize.assign_slots import assign_slots
from thalweg.optimize.choose_partitioners import choose_partitioners
from thalweg.optimize.draft import Rule
from thalweg.optimize.follow_route_keys import follow_route_keys
from thalweg.optimize.keep_rows import keep_rows
from thalweg.optimize.name_plan import name_plan
from thalweg.optimize.prune_columns import prune_columns
from thalweg.optimize.put_together import put_together
from thalweg.optimize.send_rows_whole import send_rows_whole

RULES_OF_ROWS: tuple[Rule, ...] = (
    keep_rows,  # whose rows are the state of their groupings
    send_rows_whole,  # what slots make from rows, not from partials (Holistic)
    prune_columns,  # what is read at all
    put_together,
    assign_slots,  # key groups and hot keys (SASPAR)
    choose_partitioners,  # who deals rows that are sent whole (Holistic, Dalton)
    follow_route_keys,  # whose rows go along with others
    name_plan,
)
