"""Aggregates that users define: what a query keeps of one, and what a plan carries of it to the workers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from thalweg.model.canonical import canonical

OWN = "own"
"""The function of an aggregate that is a user's own."""

State = Any
"""Whatever a user's functions hand on."""


@dataclass(frozen=True)
class Functions:
    """The functions of an aggregate."""

    init: Callable[[], State]
    update: Callable[[State, Any], State]
    merge: Callable[[State, State], State]
    finish: Callable[[State], Any]
    dump: Callable[[State], bytes] | None = None
    """Nobody calls it. See `engine.functions.dump_by_value`."""
    encode: Callable[[State], Any] | None = None
    """Gives a value that `model.aggregate_state` can encode, where a state is none."""
    decode: Callable[[Any], State] | None = None

    def __getstate__(self) -> dict[str, object]:
        """Without what was not given: the version of an aggregate is made from its pickle, and stays what it was."""
        return {name: value for name, value in vars(self).items() if value is not None}


@dataclass(frozen=True)
class Definition:
    """An aggregate as a program has defined it."""

    name: str
    type: str
    """Spark's type of what `finish` gives."""
    version: str
    """Made from the code: another definition under the same name has another version."""
    code: bytes
    """The pickled `Functions`."""


@dataclass(frozen=True)
class Own:
    """The call of such an aggregate in a query."""

    name: str
    columns: tuple[str, ...]
    """The names under which `update` sees the arguments."""
    version: str = field(compare=False)
    """That of the definition with which the query was created: it names the state, so it stays. What a program
    defines after a restart goes on with that state, and the query is still the same one."""


@canonical("OwnPartial(id, name, version, columns, types, type)")
@dataclass(frozen=True)
class OwnPartial:
    """How the states of one call are made: what the workers' functions for it are built from."""

    id: str
    """What the names of these functions end with."""
    name: str
    version: str
    columns: tuple[str, ...]
    types: tuple[str, ...]
    """Spark's types of the arguments."""
    type: str
    """Spark's type of the result."""

    @property
    def update(self) -> str:
        return f"own_update_{self.id}"

    @property
    def merge(self) -> str:
        return f"own_merge_{self.id}"

    @property
    def finish(self) -> str:
        return f"own_finish_{self.id}"
