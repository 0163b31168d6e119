"""Probe trees: shared steps, where tuples move, bounds and checks, intermediates."""

from __future__ import annotations

from thalweg.model.expr import Expr, quote
from thalweg.model.join import Equality, Join, KeyPart, Relation
from thalweg.model.join import TimeBound as TimeBound
from thalweg.model.probe import Intermediate, ProbeNode, ProbeTree
from thalweg.optimize.probe_trees import BoundJoin, TreeBuilder, stages

SECOND = 1_000_000


def query(stream: str, edges: dict[tuple[str, str], tuple[str, str]], within: int = 1) -> BoundJoin:
    """Relations joined by one column each, all within so many seconds."""
    names = sorted({name for pair in edges for name in pair})

    def part(relation: str, column: str) -> KeyPart:
        return KeyPart(relation, Expr(quote(column), "bigint", (column,)))

    join = Join(
        tuple(Relation(name, name) for name in names),
        tuple(Equality(part(a, x), part(b, y)) for (a, b), (x, y) in edges.items()),
        tuple(TimeBound(a, b, -within * SECOND, within * SECOND) for a, b in edges),
    )
    keyed = {(a, b, f"{x}={y}"): ((x,), (y,)) for (a, b), (x, y) in edges.items()}
    return BoundJoin(join, stream, keyed, join.farthest())


def tree(trees: tuple[ProbeTree, ...], relation: str) -> ProbeTree:
    return next(t for t in trees if t.relation == relation)


def only(nodes: tuple[ProbeNode, ...]) -> ProbeNode:
    (node,) = nodes
    return node


PAIR = query("ab", {("a", "b"): ("k", "k")})
CHAIN = query("abc", {("a", "b"): ("k", "k"), ("b", "c"): ("x", "x")})
SAME_KEY = query("abc same", {("a", "b"): ("k", "k"), ("b", "c"): ("k", "k")})


def test_queries_share_the_steps_they_have_in_common() -> None:
    orders = {("q", "a"): ("b",), ("r", "a"): ("b", "c"), ("q", "b"): ("a",), ("r", "b"): ("a", "c"),
              ("r", "c"): ("b", "a")}  # fmt: skip
    trees = TreeBuilder(("q", "r"), {"q": PAIR, "r": CHAIN}, orders, (), {}).trees()
    first = only(tree(trees, "a").children)
    assert (first.relation, first.queries, first.complete) == ("b", 0b11, (("ab", 0b01),))
    second = only(first.children)
    assert (second.relation, second.queries, second.complete) == ("c", 0b10, (("abc", 0b10),))
    assert [t.order for t in trees] == [0, 1, 2]


def test_tuples_move_only_for_another_key() -> None:
    orders = {("q", "a"): ("b", "c"), ("q", "b"): ("a", "c"), ("q", "c"): ("b", "a")}
    moving = TreeBuilder(("q",), {"q": CHAIN}, orders, (), {}).trees()
    staying = TreeBuilder(("q",), {"q": SAME_KEY}, orders, (), {}).trees()
    assert only(only(tree(moving, "a").children).children).moves
    assert not only(only(tree(staying, "a").children).children).moves
    assert stages(only(tree(moving, "a").children)) == 2
    assert stages(only(tree(staying, "a").children)) == 1


def test_new_rows_are_found_of_relations_before_the_start_only() -> None:
    orders = {("q", "a"): ("b",), ("q", "b"): ("a",)}
    trees = TreeBuilder(("q",), {"q": PAIR}, orders, (), {}).trees()
    assert not only(tree(trees, "a").children).new
    assert only(tree(trees, "b").children).new


def test_different_bounds_share_a_probe_and_are_checked_after_it() -> None:
    queries = {"q": PAIR, "r": query("ab", {("a", "b"): ("k", "k")}, within=3)}
    orders = {(id_, start): (other,) for id_ in queries for start, other in (("a", "b"), ("b", "a"))}
    node = only(tree(TreeBuilder(("q", "r"), queries, orders, (), {}).trees(), "a").children)
    assert node.bounds == (("a", -3 * SECOND, 3 * SECOND),)
    (check,) = node.checks
    assert check.edges == (-3 * SECOND, -SECOND, SECOND + 1, 3 * SECOND + 1)
    assert check.masks == (0, 0b10, 0b11, 0b10, 0)


def test_an_intermediate_stands_for_its_relations_once_it_is_ready() -> None:
    orders = {("q", "a"): ("b", "c"), ("q", "b"): ("a", "c"), ("q", "c"): ("b", "a")}
    kept = Intermediate("+m", ("a", "b"), "b", ("q",))
    filling = TreeBuilder(("q",), {"q": CHAIN}, orders, (kept,), {}).trees()
    assert only(tree(filling, "a").children).keeps == (("+m", 1),)
    assert only(tree(filling, "b").children).keeps == (("+m", 1),)
    assert only(tree(filling, "c").children).relation == "b"
    ready = TreeBuilder(("q",), {"q": CHAIN}, orders, (kept,), {"+m": ("q",)}).trees()
    node = only(tree(ready, "c").children)
    assert (node.relation, node.new, node.moves, node.complete) == ("+m", True, True, (("abc", 1),))
    assert [check.found for check in node.checks] == ["a"]


def test_relations_are_ordered_so_that_an_intermediate_can_be_used() -> None:
    """Of relations before the start new rows are found, of those after it only old ones: b is not between a and c."""
    star = query("star", {("a", "b"): ("k", "k"), ("a", "c"): ("x", "x")})
    orders = {("q", "a"): ("b", "c"), ("q", "b"): ("a", "c"), ("q", "c"): ("a", "b")}
    kept = Intermediate("+m", ("a", "c"), "a", ("q",))
    builder = TreeBuilder(("q",), {"q": star}, orders, (kept,), {"+m": ("q",)})
    assert [node.relation for node in tree(builder.trees(), "b").nodes()] == ["+m"]
    assert builder.places["b"] in (0, 2)


def test_an_intermediate_on_both_sides_of_the_start_is_not_used() -> None:
    """Three relations, all three pairs kept: who stands in the middle looks for one relation after the other."""
    ring = query("ring", {("a", "b"): ("k", "k"), ("a", "c"): ("x", "x"), ("b", "c"): ("y", "y")})
    orders = {("q", "a"): ("b", "c"), ("q", "b"): ("a", "c"), ("q", "c"): ("a", "b")}
    kept = [Intermediate(f"+{a}{b}", (a, b), a, ("q",)) for a, b in ("ab", "ac", "bc")]
    builder = TreeBuilder(("q",), {"q": ring}, orders, kept, {m.id: ("q",) for m in kept})
    middle = next(name for name, place in builder.places.items() if place == 1)
    for start, path in ((start, builder.paths["q", start]) for start in "abc"):
        assert len(path) == (3 if start == middle else 2)
