"""CREATE STREAM, CREATE TABLE and CREATE QUERY, read to values."""

from __future__ import annotations

from thalweg.errors import bad_syntax
from thalweg.frontend.lex import Token
from thalweg.frontend.literals import interval_literal, read_type
from thalweg.frontend.parse_options import OptionsCursor
from thalweg.frontend.statements import CreateQuery, CreateStream, CreateTable
from thalweg.model.if_there import IfThere
from thalweg.model.stream import Field

_WATERMARK = "WATERMARK FOR ts AS ts - INTERVAL 10 SECONDS"
LIMITS = ("max_ahead", "idle_timeout", "retain_rejected")


class Creates(OptionsCursor):
    def create(self, kind: str, replace: bool) -> CreateStream | CreateTable | CreateQuery:
        """What follows CREATE [OR REPLACE] STREAM, TABLE or QUERY."""
        if_there = self._if_there(replace)
        name = self.name(f"the name of a {kind}")
        if kind == "stream":
            return self._create_stream(name, if_there)
        return self._create_table(name, if_there) if kind == "table" else self._create_query(name, if_there)

    def _if_there(self, replace: bool) -> IfThere:
        start = self.token.start
        if not self.take_words("if", "not", "exists"):
            return IfThere(replace)
        if replace:
            raise bad_syntax(
                "OR REPLACE and IF NOT EXISTS exclude each other", self.text, self.since(start),
                hint="one of them says what becomes of a name that is taken",
            )  # fmt: skip
        return IfThere(keep=True)

    # -- CREATE STREAM

    def _create_stream(self, name: Token, if_there: IfThere) -> CreateStream:
        fields: list[Field] = []
        self.columns: set[str] = set()
        watermark: tuple[str, int] | None = None
        if self.take_op("("):
            for entry in self.listed(self._column):
                if isinstance(entry, Field):
                    fields.append(entry)
                else:
                    watermark = self._one_watermark(watermark, entry)
            self.expect_op(")")
        if self.is_word("watermark"):
            watermark = self._one_watermark(watermark, self._watermark())
        if watermark is None:
            raise bad_syntax(
                f"stream {name.value} has no event time and no watermark", self.text, name.span,
                hint=f"add {_WATERMARK}",
            )  # fmt: skip
        options = self.options("with")
        limits = self.options("options", LIMITS)
        time, delay_us = watermark
        self._check_time(fields, time, name)
        return CreateStream(name.value, tuple(fields) or None, time, delay_us, options, limits, if_there)

    def _column(self) -> Field | tuple[str, int]:
        if self.is_word("watermark") and self.peek().word == "for":
            return self._watermark()
        return self._field("a column or WATERMARK FOR")

    def _field(self, what: str = "a column") -> Field:
        name = self.name(what)
        if name.value.lower() in self.columns:
            raise bad_syntax(f"column '{name.value}' is there twice", self.text, name.span)
        self.columns.add(name.value.lower())
        return Field(name.value, read_type(self))

    def _one_watermark(self, had: tuple[str, int] | None, new: tuple[str, int]) -> tuple[str, int]:
        if had is not None:
            raise bad_syntax("a stream has one watermark", self.text, self.tokens[self.at - 1].span)
        return new

    def _watermark(self) -> tuple[str, int]:
        """WATERMARK FOR ts AS ts - INTERVAL 10 SECONDS; AS ts alone is a delay of nothing."""
        self.expect_word("watermark")
        if not self.take_words("for"):
            raise self.expected("FOR", hint=f"write {_WATERMARK}")
        time = self.name("the event-time column")
        self.expect_word("as")
        again = self.name("the event-time column")
        if again.value.lower() != time.value.lower():
            raise bad_syntax(
                f"the watermark of '{time.value}' is written as {time.value} - INTERVAL ...",
                self.text, again.span,
            )  # fmt: skip
        if not self.take_op("-"):
            return time.value, 0
        start = self.expect_word("interval").start
        interval = interval_literal(self, start)
        if interval.months or interval.us < 0:
            reason = "a month has no fixed length" if interval.months else "a delay is not negative"
            raise bad_syntax(f"not a watermark delay: {reason}", self.text, interval.span)
        return time.value, interval.us

    def _check_time(self, fields: list[Field], time: str, name: Token) -> None:
        if not fields:
            return
        found = next((field for field in fields if field.name.lower() == time.lower()), None)
        if found is None or not found.type.startswith("timestamp"):
            what = "is not one of its columns" if found is None else f"is {found.type}, not a timestamp"
            raise bad_syntax(f"stream {name.value}: event time '{time}' {what}", self.text, name.span)

    # -- CREATE TABLE

    def _create_table(self, name: Token, if_there: IfThere) -> CreateTable:
        fields: tuple[Field, ...] | None = None
        self.columns = set()
        if self.take_op("("):
            fields = self.listed(self._field)
            self.expect_op(")")
        options = self.options("with")
        if "path" not in options:
            hint = "add WITH (path = '...', format = 'parquet')"
            if options:  # as of a table of Flink, which is a stream here
                hint = f"rows that keep coming are a stream: CREATE STREAM {name.value} (...) WITH (source = ...)"
            raise bad_syntax(
                f"table {name.value} has no files, and a table here is static", self.text, name.span, hint=hint
            )
        return CreateTable(name.value, fields, options, if_there)

    # -- CREATE QUERY

    def _create_query(self, name: Token, if_there: IfThere) -> CreateQuery:
        sink = self.name("a sink").value if self.take_words("into") else None
        options = self.options("options")
        self.expect_word("as")
        if not self.is_word("select", "with"):
            raise self.expected("SELECT")
        start, emit = self.token.start, "final"
        self.at = len(self.tokens) - 1
        end = self.token.start
        last = self.tokens[-3:-1]
        if len(last) == 2 and last[0].word == "emit":
            if last[1].word not in ("updates", "final"):
                raise bad_syntax("expected UPDATES or FINAL after EMIT", self.text, last[1].span)
            emit, end = last[1].word, last[0].start
        return CreateQuery(name.value, self.text[start:end].rstrip(), start, sink, options, emit, if_there)
