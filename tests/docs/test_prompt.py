"""Docs: every block of Python in tutorial and README can be pasted into a prompt, as `python -i` reads lines."""

from __future__ import annotations

from codeop import CommandCompiler

import pytest
from tests.docs.pages import ROOT, Block, blocks_of

PAGES = (ROOT / "docs" / "tutorial.md", ROOT / "README.md")
BLOCKS = [
    pytest.param(block, id=f"{path.stem}-{block.line}")
    for path in PAGES
    for block in blocks_of(path.read_text(encoding="utf-8"))
    if block.kind == "python"
]


def refusal(text: str) -> str | None:
    """What a prompt says to the lines, and to which; None: it takes all of them. A compound statement ends at a
    blank line, and only there."""
    ask, waiting = CommandCompiler(), ""
    for number, line in enumerate([*text.splitlines(), ""], 1):
        waiting += f"{line}\n"
        try:
            code = ask(waiting.removesuffix("\n"), "<prompt>", "single")
        except SyntaxError as error:
            return f"line {number}, {line!r}: {error.msg}"
        waiting = waiting if code is None else ""
    return f"it waits for more after {waiting!r}" if waiting.strip() else None


@pytest.mark.parametrize("block", BLOCKS)
def test_a_block_can_be_pasted_into_a_prompt(block: Block) -> None:
    assert refusal(block.text) is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("for x in y:\n    print(x)\nprint(x)\n", "line 3, 'print(x)': invalid syntax"),
        ("def f():\n    x = 1\n\n    return x\n", "line 4, '    return x': unexpected indent"),
        ("print(\n", "it waits for more"),
        ("for x in y:\n    print(x)\n\nprint(x)\n", None),
        ("text = '''\n\na\n'''\nprint(text)\n", None),
        ("try:\n    f()\nexcept ValueError:\n    pass\n", None),
    ],
)
def test_what_a_prompt_does_not_take_is_found(text: str, said: str | None) -> None:
    found = refusal(text)
    assert found is None if said is None else (found or "").startswith(said)
