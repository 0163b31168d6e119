"""Pages whose blocks of Python are run, and whose blocks of text are what they print."""

from __future__ import annotations

import contextlib
import io
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.S | re.M)


@dataclass(frozen=True)
class Block:
    kind: str
    text: str
    start: int
    """Of its text, in the page."""
    line: int


def blocks_of(page: str) -> list[Block]:
    found = _BLOCK.finditer(page)
    return [Block(m[1], m[2], m.start(2), page.count("\n", 0, m.start(2))) for m in found]


def run_page(page: str, name: str, namespace: dict[str, Any]) -> str:
    """The page with what its blocks of Python really print. They are run in the one namespace, from the top."""
    blocks, made, at = blocks_of(page), "", 0
    for block, follows in zip(blocks, [*blocks[1:], None], strict=True):
        if block.kind != "python":
            continue
        printed = run_block(block, name, namespace)
        if follows is not None and follows.kind == "text":
            made += page[at : follows.start] + printed
            at = follows.start + len(follows.text)
        elif printed:
            made += f"{page[at : block.start + len(block.text)]}```\n\n```text\n{printed}"
            at = block.start + len(block.text)
    return made + page[at:]


def run_block(block: Block, name: str, namespace: dict[str, Any]) -> str:
    said = io.StringIO()
    # A traceback names the line of the page.
    code = compile("\n" * block.line + block.text, name, "exec", dont_inherit=True)
    with contextlib.redirect_stdout(said):
        exec(code, namespace)
    return "".join(f"{line.rstrip()}\n" for line in said.getvalue().splitlines())
