"""Text that others wrote (values, names, what a library raised), made fit to be shown on a terminal and to be kept.

A terminal obeys control characters, and drivers put passwords into what they raise.
"""

from __future__ import annotations

import re
from collections.abc import Callable

MOST_CHARACTERS = 300
"""Of what is kept of an exception."""

_HIDDEN = "***"
_NAMES = (
    r"passw(?:or)?d|passphrase|pwd|secret|token|credential|signature|\bsig\b|authorization|jaas\.config"
    r"|(?:api|access|account|private|secret|shared)[ _.-]?key"
)
_SECRET_NAME = re.compile(_NAMES, re.IGNORECASE)
_VALUE = (
    r"""'(?:[^'\\]|\\.|'')*(?:'|\Z)|"(?:[^"\\]|\\.|"")*(?:"|\Z)"""
    r"""|(?:bearer|basic)\s+[^\s,;&)}\]]+|[^\s,;&)}\]'"]+"""
)

# Each with two groups: what stays, and the secret. Every repetition is bounded or anchored: texts may be long.
_SECRETS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"""((?:{_NAMES})[\w.\-]{{0,40}}["'`\]]?\s{{0,4}}(?:=>?|:)\s{{0,4}})({_VALUE})""",
        r"""(://[^\s:/@"']{0,200}:)(?!\d+/)([^\s"']{1,300})(?=@)""",
        r"""(:thin:[^\s/@:]{1,100}/)([^\s@]{1,300})(?=@)""",
        r"(\b[\w.\-]{1,60}:)([^\s@/:]{1,200})(?=@(?:tcp|unix)\()",
        r"(\bbearer\s)([\w+/.~=\-]{6,})",
        r"(\bbasic\s)([\w+/=\-]{16,})",
    )
) + tuple(
    re.compile(pattern)
    for pattern in (
        r"()\b((?:AKIA|ASIA)[0-9A-Z]{16})\b",
        r"()\b(eyJ[\w-]{8,}\.[\w-]+\.[\w-]*)",
        r"()\b((?:gh[pousr]_|sk-|xox[abps]-)[\w-]{16,})",
        # A secret of AWS: 40 characters of base64, not the end or the middle of anything.
        r"()(?<![\w/+=.\-])(?=\w{0,39}[a-z])(?=[\w/+]{0,39}[A-Z])(?=[\w/+]{0,39}\d)([A-Za-z0-9+][A-Za-z0-9/+]{39})(?![\w/+=.\-])",
    )
)


def plain_text(text: str) -> str:
    """In one line, and without a character that a terminal would obey: each is written as Python would."""
    return text.translate(_ESCAPES)


def plain_lines(text: str) -> str:
    """The same, but lines stay lines."""
    return text.translate(_ESCAPES_IN_LINES)


def is_secret(option: str) -> bool:
    """Whether the value of an option of this name is nobody's business."""
    return _SECRET_NAME.search(option) is not None


def redact(text: str) -> str:
    """Without passwords, tokens and keys, as far as they can be told."""
    return _hide(text, lambda secret: _HIDDEN)


def redact_in_place(text: str) -> str:
    """The same in as many characters, so that places in the text stay where they were."""
    return _hide(text, lambda secret: "*" * len(secret))


def _hide(text: str, mask: Callable[[str], str]) -> str:
    for pattern in _SECRETS:
        text = pattern.sub(lambda found: found[1] + mask(found[2]), text)
    return text


def brief(text: str) -> str:
    """What is kept of a text that others wrote: its first line, redacted and bounded."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    line = redact(line[: 8 * MOST_CHARACTERS])
    return line if len(line) <= MOST_CHARACTERS else line[: MOST_CHARACTERS - 3] + "..."


def said_by(error: BaseException) -> str:
    """What is kept of an exception: its type, and briefly what it says."""
    try:
        said = str(error)
    except Exception:  # it is the exception's own code
        said = ""
    return brief(f"{type(error).__name__}: {said}" if said.strip() else type(error).__name__)


def _escapes() -> dict[int, str]:
    """C0, DEL and C1; what changes the direction of text, ends lines or has no width; halves of characters."""
    codes = [*range(0x20), *range(0x7F, 0xA0), 0xAD, 0x61C, 0x180E, 0x200B, 0x200E, 0x200F, *range(0x2028, 0x202F)]
    codes += [*range(0x2060, 0x2070), 0xFEFF, *range(0xFFF9, 0xFFFC), *range(0xD800, 0xE000)]
    codes += range(0xE0000, 0xE0080)
    return {code: repr(chr(code))[1:-1] for code in codes}


_ESCAPES = _escapes()
_ESCAPES_IN_LINES = {code: text for code, text in _ESCAPES.items() if code != ord("\n")}
