"""A cohort -> its probe trees: where an arriving row of each relation looks for partners, merged over queries.

A step is identified by what is known, what is found and what is equal; queries with the same steps so far share
them. A joined intermediate that the cohort keeps stands in a path for its relations: it is found in one step.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from thalweg.model.canonical import named
from thalweg.model.join import Join, joined_column
from thalweg.model.probe import Check, Intermediate, ProbeNode, ProbeTree
from thalweg.model.probe_order import Edge
from thalweg.optimize.relation_order import order_relations

Keys = tuple[tuple[str, ...], tuple[str, ...]]
"""The key columns on either side of an edge."""
Equal = tuple[tuple[str, str, str], ...]
TreeOrders = Mapping[tuple[str, str], tuple[str, ...]]


@dataclass(frozen=True)
class BoundJoin:
    """A query as trees see it: bound to its streams, with what its bounds imply."""

    join: Join
    stream: str
    """Of its joined rows."""
    edges: Mapping[Edge, Keys]
    far: Mapping[tuple[str, str], int]
    """(i, j) -> how much later j may be than i."""


@dataclass(frozen=True)
class _Step:
    token: str
    """The relation or the intermediate that is found."""
    member: str
    """The relation in it that the key is of."""
    old: str
    """The known relation on the other side."""
    edge: Edge
    equal: Equal


class TreeBuilder:
    """The trees of one cohort. `ids` are its queries, in the order of their bits."""

    def __init__(
        self,
        ids: Sequence[str],
        queries: Mapping[str, BoundJoin],
        orders: TreeOrders,
        kept: Sequence[Intermediate],
        ready: Mapping[str, Sequence[str]],
        uses: Mapping[tuple[str, str], Collection[str]] | None = None,
    ) -> None:
        """`uses`: (query, start) -> the intermediates that were decided for its order; where missing, all serve."""
        self.ids = ids
        self.uses = uses or {}
        self.queries = queries
        self.kept = {m.id: m for m in kept}
        names = {(r.name, r.stream) for id_ in ids for r in queries[id_].join.relations}
        self.streams = dict(names)
        looks = [(start, m.relations) for id_, start in orders for m in self._serving(id_, start, ready)]
        self.places = {name: place for place, name in enumerate(order_relations(self.streams, looks))}
        self.paths = {key: self._path(*key, order, ready) for key, order in orders.items()}

    def trees(self) -> tuple[ProbeTree, ...]:
        trees = [
            ProbeTree(name, self.streams[name], place, self._children((name,), (), tuple(self.ids)))
            for name, place in self.places.items()
        ]
        told = {(n.edge, frozenset((n.key[0][0], n.relation))) for t in trees for n in t.nodes() if not n.equal}
        return tuple(replace(tree, counted=self._counted(tree.relation, told)) for tree in trees)

    def _counted(self, name: str, told: Collection[tuple[str, frozenset[str]]]) -> tuple[ProbeNode, ...]:
        """Probes along edges that are only compared beside others, or only lead into intermediates."""
        going: dict[Edge, list[str]] = {}
        for id_ in self.ids:
            join = self.queries[id_].join
            if join.kind == "inner" and len(join.relations) > 2:  # of others there is nothing to order
                for edge in self.queries[id_].edges:
                    if edge[0] == name and (edge[2], frozenset(edge[:2])) not in told:
                        going.setdefault(edge, []).append(id_)
        return tuple(
            self._node(_Step(edge[1], edge[1], name, edge, ()), (name,), (), ids, (), ())
            for edge, ids in sorted(going.items())
        )

    def decision(self, id_: str, known: str, found: str) -> ProbeNode:
        """The probe of one relation's rows for partners in another, for one query."""
        step = self._step(id_, (known,), found)
        return self._node(step, (known,), (), (id_,), (), ())

    def _path(
        self, id_: str, start: str, order: Sequence[str], ready: Mapping[str, Sequence[str]]
    ) -> tuple[str, ...]:
        """The start and what is found in order; an intermediate that is complete stands for its relations.

        By the rule for a batch, rows of relations before the start are found even if they are new, and of those
        after it only old ones. An intermediate is used where the same holds for all of it.
        """
        path = (start, *order)
        for m in self._serving(id_, start, ready):
            places = [self.places[r] for r in m.relations]
            if self.places[start] < min(places) or self.places[start] > max(places):
                at = min(path.index(r) for r in m.relations)
                path = (*path[:at], m.id, *(r for r in path[at:] if r not in m.relations))
        return path

    def _serving(self, id_: str, start: str, ready: Mapping[str, Sequence[str]]) -> list[Intermediate]:
        """The intermediates that are complete for a query and meant for rows of this relation."""
        meant = self.uses.get((id_, start), self.kept)
        return [
            m
            for m in self.kept.values()
            if id_ in ready.get(m.id, ()) and id_ in m.queries and start not in m.relations and m.id in meant
        ]

    def _relations(self, path: Sequence[str]) -> tuple[str, ...]:
        return tuple(r for token in path for r in (self.kept[token].relations if token in self.kept else (token,)))

    # -- steps

    def _children(
        self, path: tuple[str, ...], here: tuple[tuple[str, tuple[str, ...]], ...], coming: Sequence[str]
    ) -> tuple[ProbeNode, ...]:
        """The next steps of the queries that come along the path.

        `here`: (relation, columns) whose value is the key by which the tuples lie in their slot."""
        going: dict[_Step, list[str]] = {}
        keeping: dict[_Step, list[Intermediate]] = {}
        for id_ in coming:
            whole = self.paths.get((id_, path[0]), ())
            if len(whole) > len(path) and whole[: len(path)] == path:
                step = self._step(id_, path, whole[len(path)])
                going.setdefault(step, []).append(id_)
        for m in self.kept.values() if len(path) == 1 else ():
            if path[0] in m.relations:
                (other,) = (r for r in m.relations if r != path[0])
                keeping.setdefault(self._step(m.queries[0], path, other), []).append(m)
        steps = sorted({*going, *keeping}, key=lambda s: (s.token, s.old, s.edge, s.equal))
        return tuple(
            self._node(step, path, here, going.get(step, ()), keeping.get(step, ()), going.get(step, ()))
            for step in steps
        )

    def _step(self, id_: str, path: Sequence[str], token: str) -> _Step:
        """How the query gets from what is known to what is found: by the first edge between them."""
        known, members = self._relations(path), self._relations((token,))
        edges = self.queries[id_].edges
        for old in known:
            for member in members:
                for edge in edges:
                    if {edge[0], edge[1]} == {old, member}:
                        return _Step(token, member, old, edge, self._further(id_, known, token, edge))
        raise AssertionError(f"{token} is not connected to {known}")

    def _further(self, id_: str, known: Sequence[str], token: str, used: Edge) -> Equal:
        """The query's other equalities between what is known and what is found."""
        further = []
        members = self._relations((token,))
        for edge, (left, right) in self.queries[id_].edges.items():
            for (a, mine), (b, keys) in (((edge[0], left), (edge[1], right)), ((edge[1], right), (edge[0], left))):
                if edge != used and a in known and b in members:
                    further += [(a, m, self._found(token, b, k)) for m, k in zip(mine, keys, strict=True)]
        return tuple(sorted(further))

    def _found(self, token: str, member: str, column: str) -> str:
        """A column of a member, by its name in the store where it is found."""
        return joined_column(member, column) if token in self.kept else column

    def _node(
        self,
        step: _Step,
        path: tuple[str, ...],
        here: tuple[tuple[str, tuple[str, ...]], ...],
        going: Sequence[str],
        keeping: Sequence[Intermediate],
        onward: Sequence[str],
    ) -> ProbeNode:
        through = tuple(dict.fromkeys((*going, *(id_ for m in keeping for id_ in m.queries))))
        known, members = self._relations(path), self._relations((step.token,))
        left, right = self.queries[through[0]].edges[step.edge]
        mine, keys = (left, right) if step.edge[0] == step.old else (right, left)
        store = step.token if step.token in self.kept else self.streams[step.token]
        index_keys = tuple(self._found(step.token, step.member, key) for key in keys)
        anchor = self.kept[step.token].anchor if step.token in self.kept else step.token
        first = len(path) == 1
        new = all(self.places[m] < self.places[path[0]] for m in members)
        # New rows of an intermediate are there one stage after the first.
        moves = (step.token in self.kept and new) or (not first and (step.old, mine) not in here)
        here = (*(() if moves else here), (step.old, mine), (step.member, keys))
        ended = [id_ for id_ in onward if len(self.queries[id_].join.relations) == len(known) + len(members)]
        return ProbeNode(
            relation=step.token,
            stream=store,
            edge=step.edge[2],
            index=index_id(store, index_keys),
            key=tuple((step.old, column) for column in mine),
            own=index_id(self.streams[step.old], mine) if first else "",
            equal=step.equal,
            moves=moves,
            new=new,
            bounds=tuple((r, *self._loosest(through, r, anchor)) for r in known),
            checks=tuple(
                check
                for r in known
                for m in members
                if (check := self._check(through, r, m, forced=m != anchor)) is not None
            ),
            queries=self.mask(through),
            complete=tuple(
                (name, self.mask([id_ for id_ in ended if self.queries[id_].stream == name]))
                for name in sorted({self.queries[id_].stream for id_ in ended})
            ),
            keeps=tuple((m.id, self.mask(m.queries)) for m in keeping),
            children=self._children((*path, step.token), here, [id_ for id_ in onward if id_ not in ended]),
        )

    def _loosest(self, through: Sequence[str], known: str, found: str) -> tuple[int, int]:
        far = [self.queries[id_].far for id_ in through]
        return min(-f[found, known] for f in far), max(f[known, found] for f in far)

    def _check(self, through: Sequence[str], known: str, found: str, forced: bool) -> Check | None:
        bounds = {id_: (-self.queries[id_].far[found, known], self.queries[id_].far[known, found]) for id_ in through}
        if len(set(bounds.values())) == 1 and not forced:
            return None
        edges = sorted({edge for low, high in bounds.values() for edge in (low, high + 1)})
        masks = [0]
        for d in edges:
            masks.append(self.mask([id_ for id_, (low, high) in bounds.items() if low <= d <= high]))
        return Check(known, found, tuple(edges), tuple(masks))

    def mask(self, chosen: Sequence[str]) -> int:
        return sum(1 << self.ids.index(id_) for id_ in chosen)


def index_id(store: str, keys: tuple[str, ...]) -> str:
    return named("i", store, keys)


def stages(node: ProbeNode) -> int:
    """How many stages the probes from this node on take, the one that it is in included."""
    return max((int(child.moves) + stages(child) for child in node.children), default=1)
