"""Lists of options, as statements have them: (key = 'value', ...)."""

from __future__ import annotations

from thalweg.errors import bad_syntax
from thalweg.frontend.cursor import Cursor
from thalweg.frontend.lex import Token


class OptionsCursor(Cursor):
    def options(self, word: str, known: tuple[str, ...] = ()) -> dict[str, str]:
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
