"""GROUP BY: what is a key, what the window, and how the rest reads in terms of them."""

from __future__ import annotations

from thalweg.aggregates.one_row import of_one_row
from thalweg.errors import SqlError, bad_window, needs_window, not_supported, unknown_column
from thalweg.frontend.aggregates import build, is_aggregate
from thalweg.frontend.code import Code
from thalweg.frontend.compile import Compiler
from thalweg.frontend.functions import WINDOW
from thalweg.frontend.scope import Scope
from thalweg.frontend.tree import Access, Call, Column, Interval, Literal, Node, Select, Star, walk
from thalweg.frontend.windows import read_window
from thalweg.model.expr import Expr, quote
from thalweg.model.query import Aggregate, SortKey
from thalweg.model.types import WINDOW_STRUCT, WINDOW_STRUCT_NTZ
from thalweg.model.window import Window

_BOUNDS = {"start": "window_start", "end": "window_end"}


class GroupedSelect:
    """One grouped SELECT. Keys first, then everything else in terms of `k0..`, `a0..` and the window."""

    def __init__(self, tree: Select, frame: Scope) -> None:
        self._tree, self._frame, self._scope = tree, frame, frame.compiler
        self._aliases: dict[str, tuple[Node, Code]] = {}
        """Of the results so far, which is what a name means to Spark: never one that is still to come."""
        self._results: list[Code] = []
        self._keys: dict[str, Code] = {}
        self._aggregates: dict[Aggregate, int] = {}
        self._window: tuple[Window, str] | None = None
        self._after: Compiler = Compiler(frame.text, self._unresolved, self._hook)
        self._clause = "select"
        for node in tree.group:
            self._add_key(self._target(node))
        if self._window is None:
            time = next(iter(frame.times.values())).time
            raise needs_window("GROUP BY", time, frame.text, tree.group_span or (0, 1))

    @property
    def window(self) -> Window:
        assert self._window is not None
        return self._window[0]

    @property
    def time(self) -> str:
        """The column that the window is over."""
        assert self._window is not None
        return self._window[1]

    @property
    def keys(self) -> tuple[Expr, ...]:
        return tuple(code.to_expr() for code in self._keys.values())

    @property
    def aggregates(self) -> tuple[Aggregate, ...]:
        """Complete once outputs, having and order have been asked for."""
        return of_one_row(tuple(self._aggregates), self._frame.times[self.time].time_code().to_expr())

    # -- keys

    def _target(self, node: Node) -> Node:
        """What a GROUP BY entry stands for: a position, an alias, or itself."""
        if isinstance(node, Literal) and node.type == "int" and isinstance(node.value, int):
            # Spark has already checked the range.
            return self._tree.items[node.value - 1].expr
        if isinstance(node, Column) and len(node.parts) == 1:
            name = node.parts[0].lower()
            named = (i.expr for i in self._tree.items if i.alias is not None and i.alias.lower() == name)
            if name not in self._frame.names:
                return next(named, node)
        return node

    def _add_key(self, node: Node) -> None:
        if isinstance(node, Call) and node.name == WINDOW:
            window = read_window(node, self._frame)
            if self._window is not None and self._window != window:
                raise bad_window("a query has one window", self._scope.text, node.span)
            self._window = window
            return
        code = self._scope.compile(node)
        if not code.columns:
            raise not_supported("grouping by a constant", self._scope.text, node.span, "leave it out")
        self._keys.setdefault(code.sql, code)

    # -- everything after grouping

    def outputs(self) -> list[Code]:
        """The results from left to right; a later one may name an earlier one. To be asked for once, and first."""
        for item in self._tree.items:
            if isinstance(item.expr, Star):
                raise not_supported("* with GROUP BY", self._scope.text, item.expr.span, "name the columns")
            code = self._after.compile(item.expr)
            self._results.append(code)
            if item.alias is not None:
                self._aliases[item.alias.lower()] = (item.expr, code)
        return self._results

    def having(self) -> Expr | None:
        if self._tree.having is None:
            return None
        self._clause = "having"
        return self._after.boolean(self._tree.having).to_expr()

    def order(self) -> tuple[SortKey, ...]:
        self._clause = "order"
        orders: list[SortKey] = []
        for sort in self._tree.order:
            node = sort.expr
            if isinstance(node, Literal) and node.type == "int" and isinstance(node.value, int):
                code = self._results[node.value - 1]
            else:
                code = self._after.compile(node)
            orders.append(SortKey(code.to_expr(), sort.descending, sort.nulls_first))
        return tuple(orders)

    def _hook(self, node: Node) -> Code | None:
        if is_aggregate(node) and isinstance(node, Call):
            return self._aggregate(node)
        if (window := self._window_code(node)) is not None:
            return window
        if not isinstance(node, Column):
            return self._key(node)
        # In ORDER BY a result's name goes before a key's; everywhere else it comes after.
        finders = (self._alias, self._key) if self._clause == "order" else (self._key, self._alias)
        return next((code for find in finders if (code := find(node)) is not None), None)

    def _aggregate(self, node: Call) -> Code:
        aggregate = build(self._scope, node)
        place = self._aggregates.setdefault(aggregate, len(self._aggregates))
        name = f"a{place}"
        # What a user has written can raise where it is finished, so only for rows that are the query's.
        return Code(quote(name), aggregate.type, frozenset((name,)), fails=aggregate.own is not None)

    def _window_code(self, node: Node) -> Code | None:
        """The window itself, or its start or end, however it is named."""
        if isinstance(node, Access) and self._is_window(node.arg) and node.name.lower() in _BOUNDS:
            return self._bound(node.name.lower())
        if isinstance(node, Column) and len(node.parts) == 2 and node.parts[1].lower() in _BOUNDS:
            if self._is_window(Column(node.span, node.parts[:1])):
                return self._bound(node.parts[1].lower())
            return None
        if self._is_window(node):
            start, end = (self._bound(name) for name in _BOUNDS)
            sql = f'struct_pack("start" := {start.sql}, "end" := {end.sql})'
            type_ = WINDOW_STRUCT if self._time_type() == "timestamp" else WINDOW_STRUCT_NTZ
            return Code(sql, type_, start.columns | end.columns)
        return None

    def _is_window(self, node: Node) -> bool:
        if isinstance(node, Call) and node.name == WINDOW:
            if read_window(node, self._frame) != self._window:
                raise bad_window("this window is not the one in GROUP BY", self._scope.text, node.span)
            return True
        if not isinstance(node, Column) or len(node.parts) != 1:
            return False
        name = node.parts[0].lower()
        if name in self._frame.names:
            return False
        target = self._aliases[name][0] if name in self._aliases else None
        return name == WINDOW or (isinstance(target, Call) and target.name == WINDOW)

    def _bound(self, name: str) -> Code:
        column = _BOUNDS[name]
        return Code(quote(column), self._time_type(), frozenset((column,)))

    def _time_type(self) -> str:
        return self._frame.times[self.time].time_code().type

    def _alias(self, node: Column) -> Code | None:
        """The result that a bare name stands for."""
        found = self._aliases.get(node.parts[0].lower()) if len(node.parts) == 1 else None
        return None if found is None else found[1]

    def _key(self, node: Node) -> Code | None:
        """`kN` for an expression that is grouped by: the same text over the stream is the same expression."""
        if isinstance(node, (Literal, Interval, Star)) or any(self._is_later(part) for part in walk(node)):
            return None
        try:
            code = self._scope.compile(node)
        except SqlError:
            return None
        for place, (sql, key) in enumerate(self._keys.items()):
            if sql == code.sql:
                name = f"k{place}"
                return Code(quote(name), key.type, frozenset((name,)))
        return None

    def _is_later(self, node: Node) -> bool:
        return is_aggregate(node) or (isinstance(node, Call) and node.name == WINDOW)

    def _unresolved(self, column: Column) -> Code:
        name = ".".join(column.parts)
        if column.parts[-1].lower() in self._frame.names:
            raise not_supported(f"'{name}' outside an aggregate", self._scope.text, column.span, "add it to GROUP BY")
        raise unknown_column(name, [], self._scope.text, column.span)
