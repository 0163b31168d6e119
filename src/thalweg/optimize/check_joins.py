"""What must hold of stores, cohorts and probe trees."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from thalweg.model.canonical import named
from thalweg.model.plan import Plan, StreamPlan
from thalweg.model.probe import COHORT_SIZE, Cohort, JoinPlan, ProbeNode, Store
from thalweg.optimize.probe_trees import index_id

Broken = tuple[str, str, str]
"""(rule, thing, why)."""


def what_is_broken_in_joins(plan: Plan, before: Plan) -> Iterator[Broken]:
    joins, known = plan.joins, before.joins
    for name, store in joins.stores.items():
        stream = plan.streams.get(name)
        if known.stores.get(name) is not store or before.streams.get(name) is not stream:
            yield from _of_store(store, stream, name in joins.intermediates)
    both = joins.stores.keys() | known.stores.keys()
    changed = {name for name in both if _has_less(joins.stores.get(name), known.stores.get(name))}
    for id_, cohort in joins.cohorts.items():
        probed = {role.stream for role in cohort.roles.values()}
        if known.cohorts.get(id_) is not cohort or joins.stages < known.stages or not probed.isdisjoint(changed):
            yield from _of_cohort(cohort, joins)
    yield from _of_flags(joins)
    for decision in joins.decisions:
        yield from _of_node(decision.node, f"query {decision.query}", joins.stores)


def _has_less(store: Store | None, before: Store | None) -> bool:
    """Than before. Who has found there all that is needed finds it in one that has more."""
    if store is before or before is None:
        return False
    return store is None or not ({*store.columns} >= {*before.columns} and {*store.indexes} >= {*before.indexes})


def _of_store(store: Store, stream: StreamPlan | None, is_kept: bool) -> Iterator[Broken]:
    thing, kept = f"store of {store.stream}", set(store.columns)
    if store.time not in kept:
        yield "lay_out_stores", thing, f"does not keep {store.time}, its time"
    for index in store.indexes:
        if index.id != index_id(store.stream, index.keys):
            yield "split_joins", thing, f"has an index {index.id} that does not have the name of its content"
        for key in (*index.keys, *(() if index.word.startswith(".h_") else (index.word,))):
            if key not in kept:
                yield "lay_out_stores", thing, f"does not keep {key}, by which {index.id} finds rows"
    if is_kept:
        return
    if stream is None:
        yield "share_expressions", thing, "is of a stream that the plan does not have"
        return
    there = {*stream.columns, *(c.name for c in stream.computed)}
    asked = frozenset[str]().union(*(p.reads for p in store.predicates))
    for column in sorted((kept | asked) - there):
        yield "prune_columns", thing, f"needs {column}, which the stream neither reads nor computes"


def _of_cohort(cohort: Cohort, joins: JoinPlan) -> Iterator[Broken]:
    thing = f"cohort {cohort.id}"
    if cohort.id != named("group", tuple(cohort.queries)):
        yield "form_cohorts", thing, "does not have the name of its content"
    if len(cohort.queries) > COHORT_SIZE or len(set(cohort.queries)) != len(cohort.queries):
        yield "form_cohorts", thing, f"does not have a bit of {COHORT_SIZE} for each query"
    for role in cohort.roles.values():
        store = joins.stores.get(role.stream)
        if store is None:
            yield "lay_out_stores", thing, f"needs a store of {role.stream}, which the plan does not have"
            continue
        for want in role.wants:
            missing = sorted(set(want.columns) - set(store.columns))
            if missing:
                yield "lay_out_stores", thing, f"wants {missing[0]} of {role.stream}, which its store does not keep"
    if joins.stages < max([1, *(_moves(node) for tree in cohort.trees for node in tree.children)]):
        yield "grow_probe_trees", thing, f"moves rows more often than {joins.stages} stages"
    for tree in cohort.trees:
        for root in (*tree.children, *tree.counted):
            if root.own and not _has_index(joins.stores.get(tree.stream), root.own):
                yield "lay_out_stores", thing, f"sends rows of {tree.stream} by {root.own}, which its store lacks"
            for node in root.walk():
                yield from _of_node(node, thing, joins.stores)


def _of_node(node: ProbeNode, thing: str, stores: Mapping[str, Store]) -> Iterator[Broken]:
    if not _has_index(stores.get(node.stream), node.index):
        yield "lay_out_stores", thing, f"probes {node.stream} by {node.index}, which its store does not have"
    elif len(stores[node.stream].index(node.index).keys) != len(node.key):
        yield "grow_probe_trees", thing, f"probes {node.stream} by a key that is not that of {node.index}"


def _has_index(store: Store | None, index: str) -> bool:
    return store is not None and any(known.id == index for known in store.indexes)


def _moves(node: ProbeNode) -> int:
    """Stages that the chain from this node on takes, the first one included."""
    return int(node.moves) + max((_moves(child) for child in node.children), default=1)


def _of_flags(joins: JoinPlan) -> Iterator[Broken]:
    running = {query for cohort in joins.cohorts.values() for query in cohort.queries}
    for joined in joins.joined.values():
        running |= {query for query, _ in joined.alone}
    for name, joined in joins.joined.items():
        for flag, leader in joined.leaders.items():
            if leader not in running:
                yield "form_cohorts", f"stream {name}", f"has rows with {flag} by {leader}, which no cohort runs"
