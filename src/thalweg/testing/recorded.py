"""What Spark's analyser said, kept in files, so that tests ask it again without a JVM.

    <directory>/<Spark's version>.jsonl     one answer a line: {"key": ..., "asked": ..., "answer" or "refused": ...}

The key is a hash of what was asked and of the columns of every stream and table that it names. An answer that was
recorded for other columns, or by another version of Spark, is not found.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from thalweg.engine.contract import Analyzer
from thalweg.errors import SourceError, SqlError, ThalwegError, answer_not_recorded
from thalweg.model.analysis import Columns, Learned
from thalweg.model.stream import Schema, Stream

_WORD = re.compile(r"\w+")
_KINDS = {kind.__name__: kind for kind in (SqlError, SourceError)}


def spark_version() -> str:
    """Of the installed PySpark, which is not imported for it."""
    return importlib.metadata.version("pyspark")


class Answers:
    """The answers in one directory, or in none. `add` keeps one in memory, `save` writes all, sorted by key."""

    def __init__(
        self, directory: Path | str | None, chore: str = "./dev test --record", *, anew: bool = False
    ) -> None:
        """`chore`: what to call where one is missing. `anew`: as if nothing were recorded yet: all is asked again."""
        self.chore = chore
        self.path = None if directory is None else Path(directory) / f"{spark_version()}.jsonl"
        self._lines: dict[str, dict[str, Any]] = {}
        self._is_new = False
        if self.path is not None and self.path.exists() and not anew:
            lines = map(json.loads, self.path.read_text(encoding="utf-8").splitlines())
            self._lines = {line["key"]: line for line in lines}

    def get(self, key: str) -> dict[str, Any] | None:
        return self._lines.get(key)

    def add(self, line: dict[str, Any]) -> None:
        self._lines[line["key"]] = line
        self._is_new = True

    def save(self) -> None:
        if self._is_new and self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            lines = (json.dumps(self._lines[key], ensure_ascii=False) for key in sorted(self._lines))
            self.path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
            self._is_new = False


class RecordedAnalyzer:
    """An analyser that looks answers up. With `ask`, another one is asked for those that are missing."""

    def __init__(self, answers: Answers, ask: Callable[[], Analyzer] | None = None) -> None:
        self._answers = answers
        self._ask = ask
        self._asked: Analyzer | None = None
        self._known: dict[str, Schema] = {}
        self._told: dict[str, Callable[[Analyzer], None]] = {}
        """What has to be said to another analyser before it can be asked."""

    def register(self, stream: Stream) -> None:
        asked = f"stream {stream.name}: {_columns(stream.schema)}"
        self._look_up(asked, (), lambda real: real.register(stream))
        self._tell(stream.name, stream.schema, lambda real: real.register(stream))

    def register_table(self, name: str, schema: Schema) -> None:
        self.check_table(name, schema)
        self._tell(name, schema, lambda real: real.register_table(name, schema))

    def check_table(self, name: str, schema: Schema) -> None:
        self._look_up(f"table {name}: {_columns(schema)}", (), lambda real: real.check_table(name, schema))

    def unregister(self, name: str) -> None:
        self._known.pop(name, None)
        self._told.pop(name, None)
        if self._asked is not None:
            self._asked.unregister(name)

    @property
    def learned(self) -> Learned:
        """Nothing: every text is looked up by itself, whatever was asked before it."""
        return {}

    def analyze(self, sql: str) -> Columns:
        words = {word.lower() for word in _WORD.findall(sql)}
        named = [(name, _columns(schema)) for name, schema in self._known.items() if name.lower() in words]
        return [(name, kind) for name, kind in self._look_up(sql, sorted(named), lambda real: real.analyze(sql))]

    def _tell(self, name: str, schema: Schema, tell: Callable[[Analyzer], None]) -> None:
        self._known[name], self._told[name] = schema, tell
        if self._asked is not None:
            tell(self._asked)

    def _look_up(self, asked: str, named: Sequence[tuple[str, str]], ask: Callable[[Analyzer], Any]) -> Any:
        key = hashlib.blake2b(json.dumps([asked, list(named)]).encode(), digest_size=12).hexdigest()
        line = self._answers.get(key)
        if line is None:
            line = {"key": key, "asked": asked, **_answer_of(self._real(asked), ask)}
            self._answers.add(line)
        if "refused" in line:
            raise _error_of(line["refused"])
        return line["answer"]

    def _real(self, asked: str) -> Analyzer:
        if self._ask is None:
            raise answer_not_recorded(asked, self._answers.path, self._answers.chore)
        if self._asked is None:
            self._asked = self._ask()
            for tell in self._told.values():
                tell(self._asked)
        return self._asked


def _answer_of(real: Analyzer, ask: Callable[[Analyzer], Any]) -> dict[str, Any]:
    try:
        return {"answer": ask(real)}
    except ThalwegError as error:
        told = {"message": error.message, "detail": error.detail, "hint": error.hint}
        placed = {"sql": error.sql, "span": error.span}
        return {"refused": {"kind": type(error).__name__, **told, **placed}}


def _error_of(refused: Mapping[str, Any]) -> ThalwegError:
    told = {name: refused[name] for name in ("detail", "hint", "sql")}
    span = None if refused["span"] is None else tuple(refused["span"])
    return _KINDS[refused["kind"]](refused["message"], **told, span=span)


def _columns(schema: Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema.fields)
