"""Docs: how pages are run: in one namespace, with what was really printed put into the blocks of text."""

from __future__ import annotations

import traceback
from typing import Any

import pytest
from tests.docs.pages import blocks_of, run_page

PAGE = """\
# A page

```python
x = 2
```

```python
print(x)
print("y  ")
```

```text
2
y
```

```sh
not run
```
"""


def run(page: str) -> str:
    namespace: dict[str, Any] = {}
    return run_page(page, "page.md", namespace)


def test_a_page_that_says_what_it_prints_stays_as_it_is() -> None:
    assert run(PAGE) == PAGE


def test_what_is_printed_takes_the_place_of_what_was_said() -> None:
    assert run(PAGE.replace("2\ny\n", "3\n")) == PAGE


def test_output_without_a_block_gets_one() -> None:
    said, silent = "```\n\n```text\n2\ny\n```", "```"
    assert said in PAGE
    assert run(PAGE.replace(said, silent)) == PAGE


def test_a_text_that_follows_nothing_printed_is_emptied() -> None:
    assert "old" not in run(PAGE.replace("x = 2\n```", "x = 2\n```\n\n```text\nold\n```"))


def test_a_failure_names_the_line_of_the_page() -> None:
    with pytest.raises(ZeroDivisionError) as failure:
        run(PAGE.replace("print(x)", "print(x / 0)"))
    last = traceback.extract_tb(failure.tb)[-1]
    assert (last.filename, last.lineno) == ("page.md", 8)


def test_blocks_know_their_kind() -> None:
    assert [block.kind for block in blocks_of(PAGE)] == ["python", "python", "text", "sh"]
