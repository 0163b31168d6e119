"""How joins run: together, in which order, over which stores."""

from __future__ import annotations

from thalweg.optimize.draft import Rule
from thalweg.optimize.form_cohorts import form_cohorts
from thalweg.optimize.grow_probe_trees import grow_probe_trees
from thalweg.optimize.keep_intermediates import keep_intermediates
from thalweg.optimize.lay_out_stores import lay_out_stores
from thalweg.optimize.order_probes import order_probes

RULES_OF_JOINS: tuple[Rule, ...] = (
    form_cohorts,  # which joins run together (AJoin)
    order_probes,  # in which order rows look for partners: decided, else default (CLASH)
    keep_intermediates,  # which joins of two relations are stored
    grow_probe_trees,  # probes that queries of a cohort share
    lay_out_stores,  # what is kept of streams, found by what
)
