"""What queries ask: each by itself, then what they share."""

from __future__ import annotations

from thalweg.optimize.derive_streams import derive_streams
from thalweg.optimize.draft import Rule
from thalweg.optimize.roll_up import roll_up
from thalweg.optimize.share_expressions import share_expressions
from thalweg.optimize.share_slices import share_slices
from thalweg.optimize.split_aggregates import split_aggregates
from thalweg.optimize.split_joins import split_joins

RULES_OF_QUERIES: tuple[Rule, ...] = (
    derive_streams,  # rows that joins yield are streams
    split_aggregates,  # each query by itself: partials, computed columns, a member
    split_joins,  # each join by itself: edges, predicates, indexes
    share_expressions,  # each computed column once
    share_slices,  # one grouping for equal keys, one grid for its windows
    roll_up,  # coarser from finer
)
