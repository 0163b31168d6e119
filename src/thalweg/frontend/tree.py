"""What a SELECT says, as frozen values. Each node knows its place in the text; equality ignores it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal

from thalweg.model.own import Definition

Span = tuple[int, int]


@dataclass(frozen=True)
class Node:
    span: Span = field(compare=False)

    def children(self) -> tuple[Node, ...]:
        return ()


@dataclass(frozen=True)
class Literal(Node):
    value: int | float | str | bool | Decimal | None
    type: str
    """Spark's type of the literal; dates and timestamps carry their text."""


@dataclass(frozen=True)
class Interval(Node):
    months: int
    us: int
    days_only: bool
    """Whether only days, months or years were named: then a date plus it stays a date."""


@dataclass(frozen=True)
class Column(Node):
    parts: tuple[str, ...]

    @property
    def name(self) -> str:
        """Without what qualifies it, in lower case."""
        return self.parts[-1].lower()


@dataclass(frozen=True)
class Star(Node):
    qualifier: str | None = None


@dataclass(frozen=True)
class Call(Node):
    name: str
    args: tuple[Node, ...]
    distinct: bool = False
    filter: Node | None = None
    ignore_nulls: bool = False
    own: Definition | None = None
    """Of an aggregate that the user has defined."""
    shown: str = ""
    """What Spark is shown in its place, where it does not know the name."""

    def children(self) -> tuple[Node, ...]:
        return (*self.args, self.filter) if self.filter is not None else self.args


@dataclass(frozen=True)
class Access(Node):
    """`window(...).start`: a field of something that is not a plain name."""

    arg: Node
    name: str

    def children(self) -> tuple[Node, ...]:
        return (self.arg,)


@dataclass(frozen=True)
class Unary(Node):
    op: str
    """- + ~ not."""
    arg: Node

    def children(self) -> tuple[Node, ...]:
        return (self.arg,)


@dataclass(frozen=True)
class Binary(Node):
    op: str
    left: Node
    right: Node

    def children(self) -> tuple[Node, ...]:
        return (self.left, self.right)


@dataclass(frozen=True)
class Between(Node):
    arg: Node
    low: Node
    high: Node
    negated: bool

    def children(self) -> tuple[Node, ...]:
        return (self.arg, self.low, self.high)


@dataclass(frozen=True)
class In(Node):
    arg: Node
    options: tuple[Node, ...]
    negated: bool

    def children(self) -> tuple[Node, ...]:
        return (self.arg, *self.options)


@dataclass(frozen=True)
class Like(Node):
    arg: Node
    pattern: Node
    escape: str
    negated: bool

    def children(self) -> tuple[Node, ...]:
        return (self.arg, self.pattern)


@dataclass(frozen=True)
class Is(Node):
    arg: Node
    what: str
    """null | true | false."""
    negated: bool

    def children(self) -> tuple[Node, ...]:
        return (self.arg,)


@dataclass(frozen=True)
class Case(Node):
    operand: Node | None
    whens: tuple[tuple[Node, Node], ...]
    default: Node | None

    def children(self) -> tuple[Node, ...]:
        pairs = tuple(node for pair in self.whens for node in pair)
        ends = tuple(node for node in (self.operand, self.default) if node is not None)
        return pairs + ends


@dataclass(frozen=True)
class Cast(Node):
    arg: Node
    type: str
    tried: bool

    def children(self) -> tuple[Node, ...]:
        return (self.arg,)


@dataclass(frozen=True)
class Item:
    """One entry of a SELECT list."""

    expr: Node
    alias: str | None


@dataclass(frozen=True)
class Sort:
    expr: Node
    descending: bool
    nulls_first: bool


@dataclass(frozen=True)
class Within:
    """`WITHIN 5 SECONDS`: how far apart in time the rows of two streams may be."""

    us: int
    span: Span


@dataclass(frozen=True)
class FromSource:
    """One entry of FROM, and how it is joined to those before it."""

    name: str
    span: Span
    alias: str | None = None
    kind: str = "inner"
    """inner | left | right | full | semi | anti."""
    kind_span: Span = (0, 0)
    apart: bool = False
    """After a comma, or first of all: the conditions that follow see nothing before it."""
    on: Node | None = None
    using: tuple[Column, ...] = ()
    within: Within | None = None
    end: int = 0
    """Where it ends in the text, its condition included."""

    @property
    def qualifier(self) -> str:
        return (self.alias or self.name).lower()


@dataclass(frozen=True)
class Select:
    items: tuple[Item, ...]
    sources: tuple[FromSource, ...]
    within: Within | None
    """After the whole of FROM: for every two streams that are equated."""
    where: Node | None
    group: tuple[Node, ...]
    group_span: Span | None
    having: Node | None
    order: tuple[Sort, ...]
    order_span: Span | None
    limit: int | None
    limit_span: Span | None


def conjuncts(node: Node | None) -> Iterator[Node]:
    """What must all hold, from left to right; a BETWEEN is its two halves, TRUE says nothing."""
    for part in chain(node, "and") if node is not None else ():
        if isinstance(part, Between) and not part.negated:
            yield Binary(part.span, ">=", part.arg, part.low)
            yield Binary(part.span, "<=", part.arg, part.high)
        elif not (isinstance(part, Literal) and part.value is True):
            yield part


# A chain of operators is a tree as deep as the chain is long: what goes through a tree keeps its own stack.


def chain(node: Node, op: str) -> list[Node]:
    """The operands of nested ANDs (or ORs), from left to right."""
    operands: list[Node] = []
    waiting = [node]
    while waiting:
        part = waiting.pop()
        if isinstance(part, Binary) and part.op == op:
            waiting += (part.right, part.left)
        else:
            operands.append(part)
    return operands


def walk(node: Node) -> Iterator[Node]:
    """The node and all below it, each before what is below it, from left to right."""
    waiting = [node]
    while waiting:
        part = waiting.pop()
        yield part
        waiting += reversed(part.children())


def depth(node: Node) -> int:
    """How many nodes are within one another; ANDs (or ORs) of one chain count once."""
    deepest = 0
    waiting = [(node, 1)]
    while waiting:
        part, level = waiting.pop()
        deepest = max(deepest, level)
        joined = part.op if isinstance(part, Binary) and part.op in ("and", "or") else None
        for child in part.children():
            same = joined is not None and isinstance(child, Binary) and child.op == joined
            waiting.append((child, level if same else level + 1))
    return deepest


def nodes_of(tree: Select, conditions: bool = True) -> Iterator[Node]:
    for root in roots_of(tree, conditions):
        yield from walk(root)


def roots_of(tree: Select, conditions: bool = True) -> list[Node]:
    roots = [item.expr for item in tree.items]
    roots += [*tree.group, *(sort.expr for sort in tree.order)]
    roots += [tree.having] if tree.having is not None else []
    if conditions:
        roots += [node for node in (tree.where, *(source.on for source in tree.sources)) if node is not None]
    return roots
