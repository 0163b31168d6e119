"""What of a SELECT decides on what Spark's analyser says of it: its text, but for the values of some constants.

Texts that are the same but for such constants have one template. The analyser looks at the type of these constants,
never at their values; what Thalweg makes of a text it makes of every text by itself.

A constant's value counts for the analyser, so it stays in the template,
- where it can be worked out during the analysis: outside of anything that reads a column, such as the places of
  `round`, the lengths of windows, `ORDER BY 1`;
- where it is compared with other constants: what is grouped by must be what is shown;
- in the name of a result that has no other.
An integer counts with its digits: so wide is the decimal that Spark makes of it beside another decimal.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TypeAlias

from thalweg.frontend.aggregates import is_aggregate
from thalweg.frontend.functions import WINDOW
from thalweg.frontend.scope import Found, Frame, Scope
from thalweg.frontend.tree import (
    Between,
    Binary,
    Call,
    Case,
    Column,
    FromSource,
    In,
    Is,
    Like,
    Literal,
    Node,
    Select,
    Span,
    Star,
    Unary,
    chain,
    walk,
)
from thalweg.model.analysis import Columns, Learned
from thalweg.model.types import INTEGRAL

_OPERANDS = (Binary, Between, In, Case)
"""Of these a constant may be a part without being looked at."""
_PLAIN = re.compile(r"'[^'\\\x00-\x1f]*'")
_QUOTED_OR_SPACE = re.compile(r"""('[^']*'|"[^"]*"|`[^`]*`)|\s+""")


Key: TypeAlias = tuple[str, ...]


@dataclass(frozen=True)
class Template:
    """A SELECT in parts, each of which Spark's analyser finds right or wrong by itself."""

    parts: tuple[Key, ...]
    items: tuple[tuple[Key, str | None], ...]
    """The parts that have results, and the names that are given to these. One without a name: of the key."""

    def known(self, learned: Learned) -> Columns | None:
        """The results, if all of it has been found right."""
        if not all(part in learned for part in self.parts) or not all(key in learned for key, _ in self.items):
            return None
        return [(alias or name, type_) for key, alias in self.items for name, type_ in learned[key]]

    def learn(self, columns: Columns, learned: Learned) -> None:
        learned.update((part, []) for part in self.parts)
        each = [columns] if len(self.items) == 1 else [[column] for column in columns]
        learned.update((key, found) for (key, _), found in zip(self.items, each, strict=True))


def template_of(tree: Select, frame: Frame, text: str, told: tuple[str, ...]) -> Template:
    """`text`: as Spark gets it, with everything in the place that the tree says. `told`: the types of aggregates that
    Spark does not know."""
    seen = _named(tree.sources)
    where = tuple(("where", seen, shown) for shown in _conditions(tree.where, text))
    found = None if told else _in_parts(tree, frame.final, text, seen)
    if found is not None:
        return Template((*where, *_joined(tree, text), *found.parts), found.items)
    # As a whole, but for WHERE.
    grouped = bool(tree.group)
    masks = [c for item in tree.items if item.alias is not None for c in free(item.expr, text, grouped)]
    masks += free(tree.having, text, grouped) if tree.having is not None else ()
    masks += [(tree.where.span, "?")] if tree.where is not None else ()
    masks += [c for source in tree.sources if source.on is not None for c in free(source.on, text)]
    whole = _masked(text, (0, len(text)), masks)
    return Template(where, ((("select", whole, *told), None),))


def _named(sources: Sequence[FromSource]) -> str:
    """Which names there are: what is joined in FROM, but for the conditions."""
    shown = [(s.kind, s.apart, s.name, s.alias, [c.parts for c in s.using]) for s in sources]
    return repr(shown)


def _joined(tree: Select, text: str) -> Iterator[Key]:
    """The conditions in FROM, each with the names that it can mean."""
    for place, source in enumerate(tree.sources):
        names = _named(tree.sources[: place + 1])
        yield from (("on", names, shown) for shown in _conditions(source.on, text))


def _conditions(node: Node | None, text: str) -> list[str]:
    """What must all hold: one by one, where each is a condition whatever the others are."""
    several = [] if node is None else chain(node, "and")
    if node is not None and not all(map(_is_condition, several)):
        several = [node]
    return [_masked(text, part.span, free(part, text)) for part in several]


def _is_condition(node: Node) -> bool:
    """Whether its value can be nothing but true, false or unknown."""
    if isinstance(node, Binary):
        return node.op in ("=", "<>", "<", "<=", ">", ">=", "<=>", "or")
    return isinstance(node, (Between, In, Is, Like)) or (isinstance(node, Unary) and node.op == "not")


def _in_parts(tree: Select, scope: Scope, text: str, seen: str) -> Template | None:
    """What is grouped by, and each result. None: they have to do with one another beyond that."""
    if tree.having is not None or tree.order or tree.limit is not None:
        return None
    if any((item.alias or "").lower() == WINDOW for item in tree.items):
        return None
    grouped = bool(tree.group)
    keys = [scope.meant(node) for node in tree.group if isinstance(node, Column)]
    windows = [node for node in tree.group if isinstance(node, Call) and node.name == WINDOW]
    if None in keys or len(keys) + len(windows) < len(tree.group) or len(windows) != grouped:
        return None
    parts = tuple(("group", seen, spaced(text[slice(*node.span)])) for node in tree.group)
    window = spaced(text[slice(*windows[0].span)]) if grouped else ""
    if not grouped and len(tree.items) == 1 and isinstance(tree.items[0].expr, Star):
        return Template(parts, ((("item", seen, spaced(text[slice(*tree.items[0].expr.span)])), None),))
    items: list[tuple[Key, str | None]] = []
    for item in tree.items:
        masks = free(item.expr, text, grouped) if item.alias is not None else ()
        shown = _masked(text, item.expr.span, masks)
        named = "" if item.alias is None else "named"
        if grouped and _is_bound(item.expr, scope):
            items.append((("bound", seen, window, shown, named), item.alias))
        elif _stands_alone(item.expr, scope, keys if grouped else None):
            items.append((("item", seen, shown, named), item.alias))
        else:
            return None
    return Template(parts, tuple(items))


def _is_bound(node: Node, scope: Scope) -> bool:
    """Whether it is `window.start` or `window.end`."""
    if not isinstance(node, Column) or len(node.parts) != 2 or node.parts[0].lower() != WINDOW:
        return False
    return WINDOW not in scope.names and all(entry.qualifier != WINDOW for entry in scope.entries)


def _stands_alone(root: Node, scope: Scope, keys: list[tuple[Found, ...] | None] | None) -> bool:
    """Whether all that it reads is in FROM. `keys`: what it may read outside of aggregates, after GROUP BY; then
    nothing else."""
    if isinstance(root, Column):
        meant = scope.meant(root)
        return meant is not None and (keys is None or meant in keys)
    within = set[int]()
    for node in walk(root):
        inside = id(node) in within or is_aggregate(node)
        within.update(id(child) for child in node.children() if inside)
        if isinstance(node, Star) and not inside:
            return False
        if isinstance(node, Call) and node.name == WINDOW:
            return False
        if isinstance(node, Column) and (scope.meant(node) is None or (keys is not None and not inside)):
            return False
    return True


def template_of_expression(node: Node, text: str) -> str:
    """Of an expression by itself."""
    return _masked(text, node.span, free(node, text))


def free(root: Node, text: str, grouped: bool = False) -> Iterator[tuple[Span, str]]:
    """The constants of an expression whose values do not count, each with what stands for it. `grouped`: after GROUP
    BY, where only what is within aggregates, or beside them, cannot be meant to be what is grouped by."""
    nodes = list(walk(root))
    if any(isinstance(node, Call) and (node.name == WINDOW or node.shown) for node in nodes):
        return
    reads, aggregates = set[int](), set[int]()
    for node in reversed(nodes):  # what is below comes first
        below = [id(child) for child in node.children()]
        if is_aggregate(node) or not aggregates.isdisjoint(below):
            aggregates.add(id(node))
        if isinstance(node, Column) or is_aggregate(node) or not reads.isdisjoint(below):
            reads.add(id(node))
    is_open, within = {id(root)} & reads, set[int]()
    for node in nodes:
        called, inside = isinstance(node, Call), id(node) in within or is_aggregate(node)
        for child in node.children():
            if inside:
                within.add(id(child))
            if id(node) not in is_open or (called and id(child) not in reads):
                continue
            is_open.add(id(child))
            may = isinstance(node, _OPERANDS) and (not grouped or inside or id(node) in aggregates)
            if may and isinstance(child, Literal) and (kind := _kind_of(child, text)) is not None:
                yield child.span, kind


def _kind_of(constant: Literal, text: str) -> str | None:
    """What of a constant counts for the analyser; None: all."""
    value = constant.value
    if constant.type in INTEGRAL and isinstance(value, int):
        return f"<{'-' * (value < 0)}{len(str(abs(value)))} digits {constant.type}>"
    if isinstance(value, Decimal):
        return f"<{'-' * (value < 0)}{constant.type}>"
    shown = text[constant.span[0] : constant.span[1]]
    return "<string>" if constant.type == "string" and _PLAIN.fullmatch(shown) else None


def _masked(text: str, span: Span, masks: Iterable[tuple[Span, str]]) -> str:
    """A part of a text, with something else in some places."""
    out, (at, end) = [], span
    for (start, stop), shown in sorted(masks):
        out += [text[at:start], shown]
        at = stop
    return spaced("".join((*out, text[at:end])))


def spaced(text: str) -> str:
    """With one space between words, whatever there was."""
    if "\\" in text:  # where a string ends is not so plain
        return text
    return _QUOTED_OR_SPACE.sub(lambda found: found[1] or " ", text)
