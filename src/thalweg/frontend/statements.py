"""Text -> statements: what a user can tell a session, with every SELECT still as text."""

from __future__ import annotations

from dataclasses import dataclass, field

from thalweg.errors import SqlError, bad_syntax
from thalweg.frontend.cursor import Cursor
from thalweg.frontend.elsewhere import statement_hint
from thalweg.frontend.lex import Token, lex
from thalweg.frontend.literals import interval_literal, read_type
from thalweg.model.stream import Field


@dataclass(frozen=True)
class CreateStream:
    name: str
    fields: tuple[Field, ...] | None
    """None: the source knows its columns."""
    time: str
    delay_us: int
    options: dict[str, str]
    """Of the source."""
    limits: dict[str, str] = field(default_factory=dict)
    """Of the stream: max_ahead, idle_timeout, retain_rejected."""


@dataclass(frozen=True)
class ResetWatermark:
    stream: str


@dataclass(frozen=True)
class CreateQuery:
    name: str
    select: str
    offset: int
    """Where the SELECT begins in the whole text."""
    sink: str | None
    options: dict[str, str]
    emit: str
    """final | updates."""


@dataclass(frozen=True)
class CreateTable:
    name: str
    fields: tuple[Field, ...] | None
    """None: the files know their columns."""
    options: dict[str, str]
    replace: bool = False


@dataclass(frozen=True)
class DropTable:
    name: str


@dataclass(frozen=True)
class DropQuery:
    name: str


@dataclass(frozen=True)
class PauseQuery:
    name: str


@dataclass(frozen=True)
class ResumeQuery:
    name: str


@dataclass(frozen=True)
class Show:
    what: str
    """queries | streams | tables | functions."""


@dataclass(frozen=True)
class Explain:
    name: str | None
    form: str = "text"
    """text | mermaid | graphviz."""


Statement = (
    CreateStream
    | CreateTable
    | CreateQuery
    | ResetWatermark
    | DropQuery
    | DropTable
    | PauseQuery
    | ResumeQuery
    | Show
    | Explain
)
LIMITS = ("max_ahead", "idle_timeout", "retain_rejected")


def parse(text: str) -> list[Statement]:
    """Every statement of the text, in order; `;` stands between them."""
    return [_Statements(text, tokens).statement() for tokens in _split(lex(text))]


def _split(tokens: list[Token]) -> list[list[Token]]:
    """The tokens of each statement, each list closed by an `end` at the statement's own end."""
    groups: list[list[Token]] = [[]]
    for token in tokens:
        if token.kind == "end" or (token.kind == "op" and token.text == ";"):
            groups[-1].append(Token("end", "", token.start, token.start))
            groups.append([])
        else:
            groups[-1].append(token)
    return [group for group in groups if len(group) > 1]


class _Statements(Cursor):
    def statement(self) -> Statement:
        statement = self._any()
        if self.token.kind != "end":
            raise self.expected("';' or the end of the statement")
        return statement

    def _any(self) -> Statement:
        if self.take_words("create", "stream"):
            return self._create_stream()
        if self.take_words("create", "query"):
            return self._create_query()
        if self.take_words("create", "table"):
            return self._create_table(replace=False)
        if self.take_words("create", "or", "replace", "table"):
            return self._create_table(replace=True)
        if self.take_words("alter", "stream"):
            stream = self.name("the name of a stream").value
            if not self.take_words("reset", "watermark"):
                raise self.expected("RESET WATERMARK", self._elsewhere("alter", "stream"))
            return ResetWatermark(stream)
        if self.take_words("drop", "table"):
            return DropTable(self._named("table").value)
        if self.take_words("drop", "query"):
            return DropQuery(self._named("query").value)
        if self.take_words("pause", "query"):
            return PauseQuery(self._named("query").value)
        if self.take_words("resume", "query"):
            return ResumeQuery(self._named("query").value)
        if self.take_words("show"):
            if self.is_word("queries", "streams", "tables", "functions"):
                return Show(self.next().word)
            raise self.expected("QUERIES, STREAMS, TABLES or FUNCTIONS", self._elsewhere("show"))
        if self.take_words("explain"):
            if self.is_word("select"):
                raise self.expected("the name of a query", self._elsewhere("explain"))
            form = self.next().word if self.is_word("mermaid", "graphviz") else "text"
            return Explain(None if self.token.kind == "end" else self._named("query").value, form)
        raise self._unknown()

    def _unknown(self) -> SqlError:
        if self.is_word("select"):
            return bad_syntax(
                "a SELECT alone has no name to run under", self.text, self.token.span,
                hint="write CREATE QUERY name AS SELECT ...",
            )  # fmt: skip
        if self.is_word("pause", "resume"):
            hint = self._elsewhere()
            self.next()
            return self.expected("QUERY", hint)
        hint = self._elsewhere()
        if self.is_word("alter"):
            self.next()
            return self.expected("STREAM", hint)
        if self.is_word("create", "drop"):
            self.next()
            if self.peek(-1).word == "drop":
                return self.expected("QUERY or TABLE", hint)
            if self.take_words("or", "replace"):
                return self.expected("TABLE", hint)
            return self.expected("STREAM, TABLE or QUERY", hint)
        return bad_syntax(
            f"unknown statement '{self.token.text}'", self.text, self.token.span,
            hint=hint or "CREATE STREAM | TABLE | QUERY, DROP QUERY | TABLE, PAUSE | RESUME QUERY, ALTER STREAM, "
            "SHOW QUERIES | STREAMS | TABLES | FUNCTIONS, EXPLAIN",
        )  # fmt: skip

    def _elsewhere(self, *before: str) -> str | None:
        """Of a statement that other systems have: what it is called here. `before`: words that were taken already."""
        return statement_hint([*before, *(self.peek(i).word for i in range(4))])

    def _named(self, kind: str) -> Token:
        """The name of a stream, table or query. IF [NOT] EXISTS would be taken for one."""
        if self.is_word("if") and self.peek().word in ("not", "exists"):
            taken_up = "after a restart the same CREATE takes up what is there"
            hint = (
                taken_up
                if self.peek().word == "not"
                else "SHOW QUERIES, SHOW STREAMS and SHOW TABLES tell what is there"
            )
            raise self.refuse("IF [NOT] EXISTS", self.token.span, hint)
        return self.name(f"the name of a {kind}")

    # -- CREATE STREAM

    def _create_stream(self) -> CreateStream:
        name = self._named("stream")
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
                f"stream {name.value} has no event time", self.text, name.span,
                hint="add WATERMARK FOR ts AS ts - INTERVAL 10 SECONDS",
            )  # fmt: skip
        options = self._options("with")
        limits = self._options("options", LIMITS)
        time, delay_us = watermark
        self._check_time(fields, time, name)
        return CreateStream(name.value, tuple(fields) or None, time, delay_us, options, limits)

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
        self.expect_word("for")
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

    def _create_table(self, replace: bool) -> CreateTable:
        name = self._named("table")
        fields: tuple[Field, ...] | None = None
        self.columns = set()
        if self.take_op("("):
            fields = self.listed(self._field)
            self.expect_op(")")
        options = self._options("with")
        if "path" not in options:
            hint = "add WITH (path = '...', format = 'parquet')"
            if options:  # as of a table of Flink, which is a stream here
                hint = f"rows that keep coming are a stream: CREATE STREAM {name.value} (...) WITH (source = ...)"
            raise bad_syntax(
                f"table {name.value} has no files, and a table here is static", self.text, name.span, hint=hint
            )
        return CreateTable(name.value, fields, options, replace)

    # -- CREATE QUERY

    def _create_query(self) -> CreateQuery:
        name = self._named("query")
        sink = self.name("a sink").value if self.take_words("into") else None
        options = self._options("options")
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
        return CreateQuery(name.value, self.text[start:end].rstrip(), start, sink, options, emit)

    def _options(self, word: str, known: tuple[str, ...] = ()) -> dict[str, str]:
        """`WITH (key = 'value', ...)`; nothing where the word does not come. `known`: none: any."""
        if not self.take_words(word):
            return {}
        self.expect_op("(")
        options: dict[str, str] = {}
        for key, value in self.listed(self._option):
            if key.value in options:
                raise bad_syntax(f"option '{key.value}' is there twice", self.text, key.span)
            if known and key.value not in known:
                raise bad_syntax(
                    f"there is no option '{key.value}'", self.text, key.span, hint=f"one of {', '.join(known)}"
                )
            options[key.value] = value
        self.expect_op(")")
        return options

    def _option(self) -> tuple[Token, str]:
        key = self.next()
        if key.kind not in ("name", "quoted", "string"):
            self.at -= 1
            raise self.expected("the name of an option")
        self.expect_op("=")
        sign = "-" if self.take_op("-") else ""
        value = self.next()
        if value.kind == "string" and not sign:
            return key, value.value
        if value.kind == "number":
            return key, sign + value.text
        if value.word in ("true", "false") and not sign:
            return key, value.word
        self.at -= 1
        raise self.expected("a string, a number, true or false")
