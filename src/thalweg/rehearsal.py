"""Statements tried out before the first of them takes effect.

Parts that try (`SessionParts.tried`) accept and refuse as the session's own would, with what the statements before
have made or dropped. They share the analyser, which has to know streams and tables by name; what it was told of
them is taken back.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager

import pyarrow as pa

from thalweg.engine.contract import Analyzer
from thalweg.model.analysis import Columns, Learned
from thalweg.model.bucket import Section
from thalweg.model.query import Query
from thalweg.model.stream import Schema, Stream
from thalweg.state.catalog import Table

Known = tuple[Mapping[str, Stream], Mapping[str, Table]]


class Trial:
    """An analyser that remembers what it was told, and the rows of tables that were read."""

    def __init__(self, analyzer: Analyzer, known: Callable[[], Known], mutex: AbstractContextManager[object]) -> None:
        """`known`: the streams and tables that there are, while `mutex` is held."""
        self._analyzer = analyzer
        self._known = known
        self._mutex = mutex
        with mutex:
            self._before = {name for names in known() for name in names}
        self._told: Counter[str] = Counter()
        self.rows: deque[pa.Table | None] = deque()
        """Of the tables that were tried, in their order: they are not read twice. None: of one that is kept."""
        self.bound: dict[str, tuple[object, Query]] = {}
        """Name -> what a query was bound from, and the query: it is not bound twice either."""

    def register(self, stream: Stream) -> None:
        self._analyzer.register(stream)
        self._told[stream.name] += 1

    def register_table(self, name: str, schema: Schema) -> None:
        self._analyzer.register_table(name, schema)
        self._told[name] += 1

    def check_table(self, name: str, schema: Schema) -> None:
        self._analyzer.check_table(name, schema)

    def unregister(self, name: str) -> None:
        self._analyzer.unregister(name)
        self._told[name] += 1

    def analyze(self, sql: str) -> Columns:
        return self._analyzer.analyze(sql)

    @property
    def learned(self) -> Learned:
        return self._analyzer.learned

    def take_back(self, *, all_: bool = True) -> None:
        """Has the analyser know what there is, and no more. Not all: but for names that are new and were given once.
        Nothing before the statement that gives them can mean them, and what was analysed with them still holds."""
        with self._mutex:
            streams, tables = self._known()
            for name, times in list(self._told.items()):
                if not all_ and times == 1 and name not in self._before:
                    continue
                del self._told[name]
                if name in streams:
                    self._analyzer.register(streams[name])
                elif name in tables:
                    self._analyzer.register_table(name, tables[name].schema)
                else:
                    self._analyzer.unregister(name)


def unstored(name: str, rows: pa.Table, schema: Schema) -> Table:
    """A table of which nothing is kept."""
    return Table(name, schema, Section("", name, 0, 0, rows.num_rows, 0))
