"""A place in a list of tokens, and the ways to move on from it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from thalweg.errors import SqlError, bad_syntax, not_supported
from thalweg.frontend.lex import Token, lex
from thalweg.frontend.tree import Span

T = TypeVar("T")


class Cursor:
    def __init__(self, text: str, tokens: list[Token] | None = None) -> None:
        self.text = text
        self.tokens = lex(text) if tokens is None else tokens
        self.at = 0

    @property
    def token(self) -> Token:
        return self.tokens[self.at]

    def peek(self, ahead: int = 1) -> Token:
        return self.tokens[min(self.at + ahead, len(self.tokens) - 1)]

    def next(self) -> Token:
        token = self.token
        if token.kind != "end":
            self.at += 1
        return token

    def is_op(self, *ops: str) -> bool:
        return self.token.kind == "op" and self.token.text in ops

    def is_word(self, *words: str) -> bool:
        return bool(self.token.word) and self.token.word in words

    def take_op(self, *ops: str) -> Token | None:
        return self.next() if self.is_op(*ops) else None

    def take_words(self, *words: str) -> bool:
        """Take the words if they all come next, in this order."""
        if all(self.peek(i).word == word for i, word in enumerate(words)):
            self.at += len(words)
            return True
        return False

    def expect_op(self, op: str) -> Token:
        if not self.is_op(op):
            raise self.expected(f"'{op}'")
        return self.next()

    def expect_word(self, word: str) -> Token:
        if not self.is_word(word):
            raise self.expected(word.upper())
        return self.next()

    def name(self, what: str) -> Token:
        if self.token.kind not in ("name", "quoted"):
            raise self.expected(what)
        return self.next()

    def expected(self, what: str, hint: str | None = None) -> SqlError:
        token = self.token
        found = f"'{token.text}'" if token.kind != "end" else "the end of the text"
        return bad_syntax(f"expected {what}, found {found}", self.text, self.place(token), hint)

    def place(self, token: Token) -> Span:
        """The token's own span; for the end of the text, its last character."""
        if token.kind != "end":
            return token.span
        last = len(self.text[: token.end].rstrip())
        return (max(0, last - 1), max(1, last))

    def since(self, start: int) -> Span:
        return (start, self.tokens[self.at - 1].end)

    def refuse(self, what: str, span: Span, hint: str | None = None) -> SqlError:
        return not_supported(what, self.text, span, hint)

    def listed(self, parse: Callable[[], T]) -> tuple[T, ...]:
        """One or more entries with commas between them."""
        entries = [parse()]
        while self.take_op(","):
            entries.append(parse())
        return tuple(entries)
