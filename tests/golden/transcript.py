"""A session whose steps are written down: what it was told, and what EXPLAIN said then."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from textwrap import dedent
from typing import Any

import msgspec
import pyarrow as pa

from thalweg.adapt.contract import SolverCall
from thalweg.model.measurements import Dealing, Partitioners
from thalweg.model.partitioning import Partitioning
from thalweg.model.probe_order import OrdersInForce, ProbeOrder
from thalweg.testing import LocalSession

_SIZES = re.compile(r"\d+\.\d MiB")
"""What files take depends on how Arrow writes them. Everything else that EXPLAIN says is counted."""


class Transcript:
    """What a case does. Statements stand in its text as they are, everything else as comments of SQL."""

    def __init__(self, about: str, local: Callable[..., LocalSession]) -> None:
        self._local = local
        self._lines = [f"-- {about}", ""]
        self._session: LocalSession | None = None

    @property
    def text(self) -> str:
        return "\n".join(self._lines)

    @property
    def session(self) -> LocalSession:
        if self._session is None:
            self.open()
        assert self._session is not None
        return self._session

    def open(self, slots: int = 2, **settings: Any) -> None:
        """Begins with other settings than those of a session that is told nothing but its streams."""
        self._session = self._local(slots=slots, **settings)
        given = {"slots": slots, **{name: value for name, value in settings.items() if not isinstance(value, Path)}}
        self.say(", ".join(f"{name} = {value}" for name, value in given.items()))

    def reopen(self, state_dir: Path, **settings: Any) -> None:
        """Ends the session and opens what it has left."""
        self.session.stop()
        self._lines.append("")
        self.say("stopped, and opened again")
        self.open(state_dir=state_dir, **settings)

    def say(self, what: str) -> None:
        self._lines.append(f"-- {what}")

    def sql(self, text: str) -> None:
        """Runs statements."""
        text, session = dedent(text).strip(), self.session
        self._lines.append(text)
        session.sql(text)

    def queries(self, count: int, name: str, select: str) -> None:
        """Creates many queries, with their number in place of <i>."""
        session = self.session
        self.say(f"{count} queries, i from 0 on")
        self._lines.append(f"CREATE QUERY {name} AS {select};")
        for i in range(count):
            session.create_query(name.replace("<i>", str(i)), select.replace("<i>", str(i)))

    def run(self, about: str = "", **rows: pa.Table) -> None:
        """Gives rows to streams, one half to each of two tasks, and runs until all are processed."""
        for stream, table in rows.items():
            half = table.num_rows // 2
            for part in (table.slice(0, half), table.slice(half)):
                self.session._parts.feeding.sources[stream].append(part)
        told = ", ".join(f"{table.num_rows:,} rows of {stream}" for stream, table in rows.items())
        self.say(f"run: {told or 'without rows'}{f'; {about}' if about else ''}")
        self.session.run_available()

    def explain(self, name: str = "", form: str = "text") -> None:
        said = _SIZES.sub("_ MiB", self.session.explain(name or None, form))
        asked = " ".join(word for word in ("EXPLAIN", form.upper() if form != "text" else "", name) if word)
        self._lines += [f"{asked};", "", said, ""]

    # -- what adaptation would decide after a while

    def settle(self, about: str, dealing: Mapping[str, Dealing]) -> None:
        """As if this had been measured and decided in batches before."""
        self.say(f"decided: {about}")
        runner = self.session._parts.runner
        measured = msgspec.structs.replace(runner.manifest.measured, partitioners=Partitioners(dealing=dict(dealing)))
        runner.manifest = replace(runner.manifest, measured=measured)

    def assign(self, about: str, assignment: Mapping[str, list[int]], co_located_with: Mapping[str, str]) -> None:
        """A partitioning that the next batch puts into force."""
        self.say(f"proposed: {about}")
        runner = self.session._parts.runner
        proposed = Partitioning(
            assignment, co_located_with, runner.adaptations.decided(runner.manifest.measured, 0).slots
        )
        runner.adaptations.change("slot_assignment", proposed=proposed)

    def order(self, query: str, orders: Mapping[str, ProbeOrder], reason: str, *changes: str) -> None:
        """Orders of a join that the next batch puts into force."""
        self.say(f"proposed: {reason}")
        id_ = self.session.query(query).id
        proposed = OrdersInForce({id_: orders}, (id_,), reason=reason, changes=changes)
        asked = SolverCall(0, "a case asks", 0.0)
        self.session._parts.runner.adaptations.change(
            "probe_orders", asked=asked, answer=reason, coming=((0, proposed),)
        )
