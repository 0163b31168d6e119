"""What Spark's analyser says of a SELECT, and what is learned from it."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import TypeAlias

Columns: TypeAlias = list[tuple[str, str]]
"""Names and types of results."""
Learned: TypeAlias = MutableMapping[tuple[str, ...], Columns]
"""By what was learned, and of what: a template of texts, of which all have this answer."""
