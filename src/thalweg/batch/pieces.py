"""A plan in pieces, so that tasks are given only what has changed of it.

A plan of 2,000 queries is two megabytes as a whole, and one more query changes little of it. So every long tuple or
mapping of a plan is cut into short runs, and its greater parts are runs of their own. A piece is such a run, pickled,
and its name is a digest of that: what two plans have in common has the same name in both. Nobody has to know for it
what of a plan is new. Where a run ends depends on the objects in it, which the planner takes over from plan to plan,
so one that comes or goes makes other pieces only where it is.

A worker holds the pieces of the plans that it had last. What it lacks, it finds in what was sent: all pieces of a
plan are there as long as tasks may run with it.
"""

from __future__ import annotations

import hashlib
import io
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

from thalweg.model.plan import Grouping, Plan, StreamPlan
from thalweg.model.probe import Cohort, Joined, Store

MOST = 32
"""Items of a run, and of what is not cut."""
ABOUT = 16
"""Items of most runs."""
PARTS = (Cohort, Grouping, Joined, Store, StreamPlan)
"""What is a run of its own."""
PLANS = 2
"""Of a worker, whose pieces it holds: the one that runs, and the one before, of which the next one may take more."""
_NAME = 12
"""Bytes of a name."""
_SPREAD = 0x9E3779B97F4A7C15
"""Addresses have patterns; times this, their upper bits have none (Knuth's multiplicative hashing)."""


Reference = tuple[str, bytes] | tuple[str, bytes, bytes]
"""A kind, and the names of runs: of a mapping, those of its keys and of its values."""


# -- the driver cuts


@dataclass(frozen=True, eq=False)
class _Run:
    items: tuple[object, ...]
    """They are held: other objects cannot have their addresses then."""
    name: bytes
    pickled: bytes
    inner: tuple[_Run, ...]
    """The runs that its items consist of."""


_Runs = dict[tuple[int, ...], _Run]
"""By the addresses of their items."""


@dataclass(frozen=True, eq=False)
class CutPlan:
    name: bytes
    """Of the piece that all others hang on."""
    pieces: Mapping[bytes, bytes]
    """All of the plan, by their names."""


class Cutter:
    """Cuts one plan after the other. What it has of the last one it does not pickle again."""

    def __init__(self) -> None:
        self._runs: _Runs = {}

    def cut(self, plan: Plan) -> CutPlan:
        known, self._runs = self._runs, {}
        whole = self._run(known, (plan,))
        return CutPlan(whole.name, {run.name: run.pickled for run in self._runs.values()})

    def _run(self, known: _Runs, items: tuple[object, ...]) -> _Run:
        key = (*map(id, items),)
        run = self._runs.get(key) or known.get(key)
        if run is None:
            pickled = io.BytesIO()
            pickler = _Pickler(pickled, items, partial(self._run, known))
            pickler.dump(items)
            text = pickled.getvalue()
            run = _Run(items, hashlib.blake2b(text, digest_size=_NAME).digest(), text, (*pickler.inner,))
        self._keep(key, run)
        return run

    def _keep(self, key: tuple[int, ...], run: _Run) -> None:
        """With all that it consists of."""
        if key not in self._runs:
            self._runs[key] = run
            for inner in run.inner:
                self._keep((*map(id, inner.items),), inner)


class _Pickler(pickle.Pickler):
    def __init__(
        self, file: io.BytesIO, items: tuple[object, ...], run: Callable[[tuple[object, ...]], _Run]
    ) -> None:
        super().__init__(file, protocol=5)
        self.inner: list[_Run] = []
        self._itself = items[0] if len(items) == 1 else None
        self._run = run

    def persistent_id(self, value: object) -> Reference | None:
        """What stands for a long tuple, a long mapping or a part in what is pickled."""
        if type(value) is tuple and len(value) > MOST:
            return "tuple", self._names(_runs(value))
        if type(value) is dict and len(value) > MOST:
            return "dict", self._names(_runs((*value,))), self._names(_runs((*value.values(),)))
        if type(value) in PARTS and value is not self._itself:
            return "part", self._names([(value,)])
        return None

    def _names(self, runs: Iterable[tuple[object, ...]]) -> bytes:
        made = [self._run(items) for items in runs]
        self.inner += made
        return b"".join([run.name for run in made])


def _runs(items: tuple[object, ...]) -> Iterator[tuple[object, ...]]:
    """A run ends with an item that says so by its address, or is as long as it may be."""
    begin = 0
    for at, item in enumerate(items, 1):
        if at - begin == MOST or (id(item) * _SPREAD >> 40) % ABOUT == 0:
            yield items[begin:at]
            begin = at
    if begin < len(items):
        yield items[begin:]


# -- a worker puts together


@dataclass(frozen=True, eq=False)
class _Piece:
    items: tuple[Any, ...]
    inner: tuple[bytes, ...]
    """The names of the pieces that its items consist of."""


class Assembler:
    """Puts plans together, from pieces that it has and such as it is sent."""

    def __init__(self) -> None:
        self._plans: dict[bytes, dict[bytes, _Piece]] = {}
        """The last plans, by the names of what all of each hangs on."""

    def plan(self, name: bytes, sent: Iterable[Mapping[bytes, bytes]]) -> Plan:
        """`sent`: where the pieces are that it lacks. They are asked for one by one, and no more than needed."""
        pieces = self._plans.pop(name, None)
        if pieces is None:
            pieces = {}
            _Assembly(self._plans.values(), sent, pieces).piece(name)
        self._plans[name] = pieces
        while len(self._plans) > PLANS:
            del self._plans[next(iter(self._plans))]
        (plan,) = pieces[name].items
        assert isinstance(plan, Plan)
        return plan


class _Assembly:
    """Of one plan."""

    def __init__(
        self,
        known: Iterable[Mapping[bytes, _Piece]],
        sent: Iterable[Mapping[bytes, bytes]],
        pieces: dict[bytes, _Piece],
    ) -> None:
        self._known = [*known]
        self._sent = iter(sent)
        self._open: list[Mapping[bytes, bytes]] = []
        self._pieces = pieces

    def piece(self, name: bytes) -> _Piece:
        found = self._pieces.get(name)
        if found is None:
            found = next((pieces[name] for pieces in self._known if name in pieces), None)
            if found is None:
                unpickler = _Unpickler(io.BytesIO(self._bytes(name)), self)
                found = _Piece(unpickler.load(), (*unpickler.inner,))
            self._pieces[name] = found
            for inner in found.inner:
                self.piece(inner)
        return found

    def _bytes(self, name: bytes) -> bytes:
        for pieces in self._open:
            if name in pieces:
                return pieces[name]
        for pieces in self._sent:
            self._open.append(pieces)
            if name in pieces:
                return pieces[name]
        raise KeyError(name.hex())


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, assembly: _Assembly) -> None:
        super().__init__(file)
        self.inner: list[bytes] = []
        self._assembly = assembly

    def persistent_load(self, reference: Reference) -> Any:
        kind, *names = reference
        parts = [self._joined(several) for several in names]
        if kind == "dict":
            return dict(zip(*parts, strict=True))
        return parts[0] if kind == "tuple" else parts[0][0]

    def _joined(self, names: bytes) -> tuple[Any, ...]:
        several = [names[at : at + _NAME] for at in range(0, len(names), _NAME)]
        self.inner += several
        return (*chain.from_iterable(self._assembly.piece(name).items for name in several),)
