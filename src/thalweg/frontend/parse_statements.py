"""Text -> statements."""

from __future__ import annotations

from thalweg.errors import bad_syntax
from thalweg.frontend.elsewhere import statement_hint
from thalweg.frontend.lex import Token, lex
from thalweg.frontend.parse_create import Creates
from thalweg.frontend.statements import (
    AlterStream,
    Describe,
    DropQuery,
    DropStream,
    DropTable,
    Explain,
    PauseQuery,
    ResetWatermark,
    ResumeQuery,
    SelectResults,
    Show,
    ShowCreate,
    Statement,
)

ALTERABLE = ("watermark", "idle_timeout", "max_ahead")
_KINDS = ("stream", "table", "query")


def parse_statements(text: str) -> list[Statement]:
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


class _Statements(Creates):
    def statement(self) -> Statement:
        statement = self._any()
        if self.token.kind != "end":
            raise self.expected("';' or the end of the statement")
        return statement

    def _any(self) -> Statement:
        if self.is_word("select", "with"):
            return self._select()
        for begins, parse_rest in (
            ("create", self._create),
            ("drop", self._drop),
            ("alter", self._alter),
            ("show", self._show),
            ("explain", self._explain),
        ):
            if self.take_words(begins):
                return parse_rest()
        if self.take_words("describe") or self.take_words("desc"):
            return self._describe()
        for verb, make in (("pause", PauseQuery), ("resume", ResumeQuery)):
            if self.take_words(verb):
                if not self.take_words("query"):
                    raise self.expected("QUERY", self._elsewhere(verb))
                return make(self.name("the name of a query").value)
        raise bad_syntax(
            f"unknown statement '{self.token.text}'", self.text, self.token.span,
            hint=self._elsewhere() or "CREATE | DROP | DESCRIBE | SHOW CREATE STREAM | TABLE | QUERY, ALTER STREAM, "
            "PAUSE | RESUME QUERY, SHOW QUERIES | STREAMS | TABLES | FUNCTIONS, EXPLAIN, SELECT",
        )  # fmt: skip

    def _create(self) -> Statement:
        replace = self.take_words("or", "replace")
        before = ("create", "or", "replace") if replace else ("create",)
        if not self.is_word(*_KINDS):
            raise self.expected("STREAM, TABLE or QUERY", self._elsewhere(*before))
        return self.create(self.next().word, replace)

    def _drop(self) -> Statement:
        if not self.is_word(*_KINDS):
            raise self.expected("STREAM, TABLE or QUERY", self._elsewhere("drop"))
        kind = self.next().word
        if_exists = self.take_words("if", "exists")
        name = self.name(f"the name of a {kind}").value
        if kind == "stream":
            return DropStream(name, if_exists)
        return DropTable(name, if_exists) if kind == "table" else DropQuery(name, if_exists)

    def _alter(self) -> Statement:
        if not self.is_word("stream"):
            raise self.expected("STREAM", self._elsewhere("alter"))
        self.next()
        name = self.name("the name of a stream").value
        if self.take_words("reset", "watermark"):
            return ResetWatermark(name)
        if not self.is_word("set"):
            raise self.expected("SET or RESET WATERMARK", self._elsewhere("alter", "stream"))
        return AlterStream(name, self.options("set", ALTERABLE))

    def _show(self) -> Statement:
        if self.is_word("queries", "streams", "tables", "functions"):
            return Show(self.next().word)
        if self.is_word("create"):
            self.next()
            if not self.is_word(*_KINDS):
                raise self.expected("STREAM, TABLE or QUERY")
            kind = self.next().word
            return ShowCreate(kind, self.name(f"the name of a {kind}").value)
        raise self.expected("QUERIES, STREAMS, TABLES, FUNCTIONS or CREATE", self._elsewhere("show"))

    def _describe(self) -> Statement:
        kind = self.next().word if self.is_word(*_KINDS) and self.peek().kind != "end" else None
        name = self.name("the name of a stream, table or query")
        return Describe(name.value, name.start, kind)

    def _explain(self) -> Statement:
        if self.is_word("select"):
            raise self.expected("the name of a query", self._elsewhere("explain"))
        form = self.next().word if self.is_word("mermaid", "graphviz") else "text"
        return Explain(None if self.token.kind == "end" else self.name("the name of a query").value, form)

    def _select(self) -> Statement:
        start, end = self.token.start, self.tokens[-1].start
        self.at = len(self.tokens) - 1
        return SelectResults(self.text[start:end].rstrip(), start)

    def _elsewhere(self, *before: str) -> str | None:
        """Of a statement that other systems have: what it is called here. `before`: words that were taken already."""
        return statement_hint([*before, *(self.peek(i).word for i in range(4))])
