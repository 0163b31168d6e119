"""Text -> tokens, by Spark's rules for names, strings and numbers. Every token knows its place."""

from __future__ import annotations

import re
from dataclasses import dataclass

from thalweg.errors import bad_syntax

_TOKEN = re.compile(
    r"""
      (?P<space>\s+|--[^\n]*|/\*.*?\*/)
    | (?P<raw>[rR](?:'[^']*'|"[^"]*"))
    | (?P<string>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")
    | (?P<quoted>`(?:[^`]|``)+`)
    | (?P<number>(?:\d+\.\d*|\.\d+|\d+)(?:[eE][+-]?\d+)?(?:BD|bd|[LlSsYyDdFf])?(?![A-Za-z0-9_]))
    | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
    | (?P<op><=>|->|=>|\|\||<<|>>|<>|!=|<=|>=|==|::|[-+*/%&|^~=<>!(),.;\[\]:?{}@$])
    """,
    re.VERBOSE | re.DOTALL,
)
_LONGEST_NUMBER = 1_000
"""Far more than any type holds, and fewer than the 4,300 from which on Python refuses to read one."""
_ESCAPES = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"}
_ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|[0-3][0-7]{2}|.)", re.DOTALL)


@dataclass(frozen=True)
class Token:
    kind: str
    """name | quoted | string | number | op | end."""
    text: str
    start: int
    end: int
    value: str = ""
    """A name without its backticks; a string with its escapes resolved."""

    @property
    def span(self) -> tuple[int, int]:
        return (self.start, self.end)

    @property
    def word(self) -> str:
        """The token as a keyword: a plain name in lower case, nothing for every other kind."""
        return self.text.lower() if self.kind == "name" else ""


def lex(text: str) -> list[Token]:
    """All tokens of the text, comments left out, closed by one of kind `end`."""
    tokens: list[Token] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None or (text.startswith("/*", at) and match.lastgroup == "op"):
            raise _unreadable(text, at)
        kind = match.lastgroup or ""
        if kind == "number" and match.end() - at > _LONGEST_NUMBER:
            raise bad_syntax(f"a number has at most {_LONGEST_NUMBER:,} characters", text, match.span())
        if kind != "space":
            try:
                tokens.append(_token(kind, match[0], at))
            except (ValueError, OverflowError):
                raise bad_syntax("an escape in this string is not a character", text, match.span()) from None
        at = match.end()
    tokens.append(Token("end", "", len(text), len(text)))
    return tokens


def only_tokens(text: str) -> str:
    """The text with nothing in it but its tokens, each at its place.

    What is a comment by the rules here need not be one for Spark (a carriage return ends its line comments, brackets
    nest, `/*+` is a hint): what this package has not read, nobody else may read.
    """
    shown = ["\n" if char == "\n" else " " for char in text]
    for token in lex(text):
        shown[token.start : token.end] = text[token.start : token.end]
    return "".join(shown)


def _token(kind: str, text: str, at: int) -> Token:
    end = at + len(text)
    if kind == "raw":
        return Token("string", text, at, end, text[2:-1])
    if kind == "string":
        return Token("string", text, at, end, _unescape(text))
    if kind == "quoted":
        return Token("quoted", text, at, end, text[1:-1].replace("``", "`"))
    return Token(kind, text, at, end, text if kind == "name" else "")


def _unescape(literal: str) -> str:
    quote = literal[0]
    body = literal[1:-1].replace(quote * 2, quote)

    def resolve(match: re.Match[str]) -> str:
        code = match[1]
        if code[0] in "uU" and len(code) > 1:
            return chr(int(code[1:], 16))
        if len(code) == 3:
            return chr(int(code, 8))
        return _ESCAPES.get(code, code)

    resolved = _ESCAPE.sub(resolve, body)
    # Two escapes may be the halves of one character; half a one is none.
    return resolved.encode("utf-16", "surrogatepass").decode("utf-16")


def _unreadable(text: str, at: int) -> Exception:
    char = text[at]
    if char in "'\"":
        return bad_syntax("this string is never closed", text, (at, len(text)))
    if char == "`":
        return bad_syntax("this quoted name is never closed", text, (at, len(text)))
    if text.startswith("/*", at):
        return bad_syntax("this comment is never closed", text, (at, len(text)))
    if char.isdigit() or char == ".":
        return bad_syntax("not a number", text, (at, at + 1))
    return bad_syntax(f"unexpected character {char!r}", text, (at, at + 1))
