"""Chaos: what is right. Every sink has each row of the undisturbed run once, the state means the same, and every file
has a reason to be there.

The reasons are written down here once more, from the layout of a state directory, and not asked of the code that
deletes files.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from tests.recovery.chaos_client import Client, RefusalError
from tests.recovery.chaos_world import World

from thalweg.state.container import read_footer
from thalweg.state.manifest import Manifest, latest_manifest
from thalweg.testing import LocalSession
from thalweg.testing.compare import Row, difference, unmatched
from thalweg.testing.disk import FaultyDisk

KNOWN = {
    "trust 2": "a sink that fails once loses its rows: its query has stopped",
    "trust 46": "a crash in a files sink leaves a temporary in the user's directory",
    "by design": "a join that came later finds, before its complete_from, the rows that happen to be held still",
}
_LONGEST_WINDOW_US = 20_000_000


@dataclass
class Story:
    """What happened in a seed."""

    seed: int
    deaths: int = 0
    lost: int = 0
    doubled: int = 0
    known: list[str] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def say(self, text: str) -> None:
        self.log.append(text)


# -- results and state -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outcome:
    """What there is to see of a pipeline that has come to an end."""

    results: dict[str, pa.Table]
    rejected: dict[str, pa.Table]
    state: dict[str, Any]
    errors: dict[str, str]
    """The queries that have failed, and why; those that were dropped afterwards, too."""
    complete_from: dict[str, int] = field(default_factory=dict)
    """As of `Client`."""


def look(client: Client, session: LocalSession) -> Outcome:
    return Outcome(
        client.results(session),
        client.rejected(session),
        described(latest_manifest(session.state_dir)),
        client.errors(session),
        dict(client.complete_from),
    )


def described(manifest: Manifest | None) -> dict[str, Any]:
    """What a manifest says of the state, whichever tasks wrote it and whenever it was merged."""
    if manifest is None:
        return {}
    return {
        "streams": {name: (p.max_time_us, p.rows, p.late, p.rejected) for name, p in manifest.streams.items()},
        "closed": {n: us for n, us in manifest.extra["closed"].items() if n in manifest.streams},
        "reached": manifest.extra["reached"]["streams"],
        "queries": {q["query"]["name"]: (q["state"], q["emitted"]) for q in manifest.queries.values()},
    }


def refused_sinks(client: Client, disk: FaultyDisk) -> dict[str, set[str]]:
    """The queries whose sinks were made to fail, and what their errors say then: the path of a verb, or what the
    callable raised."""
    found = {name: {f"{RefusalError.__name__}: {name}"} for name in client.raised}
    for _, _, path in disk.refused:
        place, *below = path.split("/")
        if place == "sinks" and below:
            found.setdefault(below[0], set()).add(f"{path}'")
    return found


def compare(
    world: World, found: Outcome, wanted: Outcome, refused: Mapping[str, Collection[str]], story: Story
) -> None:
    """`refused`: as of `refused_sinks`. Only a query that has stopped because of that may lack rows."""
    errors = found.errors.items()
    stopped = {name for name, error in errors if any(reason in error for reason in refused.get(name, ()))}
    story.known += ["trust 2"] * bool(stopped)
    for name, error in errors:
        if name not in stopped:
            story.wrong.append(f"query {name} failed, and not by its sink: {error}")
    partial = set()
    for name, query in world.queries.items():
        title = f"query {name} into {query.sink}: {query.select}"
        open_until = _open_until(name, found, wanted)
        table, right = found.results[name], wanted.results[name]
        if _compare(title, table, right, query.approximate, name in stopped, story, open_until):
            partial.add(name)
    story.known += ["by design"] * bool(partial)
    read = {stream for name in stopped for stream in _streams_of(world, name)}
    for stream, rows in wanted.rejected.items():
        if stream not in read:
            _compare(f"rows of {stream} that cannot be read", found.rejected[stream], rows, (), False, story)
    _compare_state(found.state, wanted.state, {*read, *stopped, *partial}, story)


def _compare(
    title: str,
    found: pa.Table,
    wanted: pa.Table,
    approximate: Collection[str],
    may_lack: bool,
    story: Story,
    open_until: int | None = None,
) -> bool:
    """Whether the two differ where they may: in rows that are not certainly after `open_until`."""
    if found.num_rows == wanted.num_rows == 0:
        return False
    unlike = unmatched(found, wanted, approximate=approximate)
    surplus, missing = ([row for row in rows if not _is_open(row, wanted.schema, open_until)] for rows in unlike)
    if surplus or (missing and not may_lack):
        story.doubled += len(surplus)
        story.lost += len(missing)
        story.wrong.append(f"{title}\n{difference(found, wanted, approximate=approximate)}")
    return (len(surplus), len(missing)) != (len(unlike[0]), len(unlike[1]))


def _open_until(query: str, found: Outcome, wanted: Outcome) -> int | None:
    """The event time up to which nothing is promised of a join that came later: it finds what stores still hold, and
    they let go of whole buckets, which the batches and tasks have cut."""
    times = [outcome.complete_from[query] for outcome in (found, wanted) if query in outcome.complete_from]
    return max(times, default=None)


def _is_open(row: Row, schema: pa.Schema, until: int | None) -> bool:
    """A row without any time could be of any; of a window the end may be shown, and the beginning count."""
    if until is None:
        return False
    times = []
    for value, column in zip(row, schema, strict=True):
        if pa.types.is_timestamp(column.type) or pa.types.is_struct(column.type):
            times += [us for us in (value if isinstance(value, tuple) else (value,)) if us is not None]
    return not times or min(times) < until + _LONGEST_WINDOW_US


def _streams_of(world: World, query: str) -> set[str]:
    words = set(re.findall(r"\w+", world.queries[query].select))
    return {feed.stream for feed in world.feeds if feed.stream in words}


def _compare_state(found: Mapping[str, Any], wanted: Mapping[str, Any], but: Collection[str], story: Story) -> None:
    """`but`: streams and queries of which nothing can be said, as one has stopped."""

    def told(part: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in part.items() if name not in but}

    for part, value in wanted.items():
        if told(found.get(part, {})) != told(value):
            story.wrong.append(f"the last manifest has other {part}: {found.get(part)} instead of {value}")


# -- files -----------------------------------------------------------------------------------------------------

FIXED = {"changes.log", "catalog.json", "identity", "lock", "streams.json", "tables.json", "thalweg.json"}
_BATCHES = re.compile(r"(\d{12})(?:-(\d{12}))?\.arrow")
_OF_BATCH = re.compile(r"(\d{12})-.+\.arrow")
_UNIT = re.compile(r"(\d{10})\.arrow")
_PART = re.compile(r"part-(\d{12})\.parquet")
_COLLECTED_EVERY = 64
"""Batches after which files are looked for that no manifest names, at the latest."""


class Reasons:
    """Why a file may be in a state directory whose session has ended in good order.

    `litter`: files that attempts which did not count, and lives that ended early, have written. They may lie among
    buckets and results put aside until the collector comes, and not longer.
    """

    def __init__(self, state_dir: Path, litter: Collection[str] = ()) -> None:
        self._state_dir = state_dir
        self._litter = litter
        self._manifest: dict[str, Any] = {}
        self._newest = max((int(path.stem) for path in (state_dir / "manifests").glob("[0-9]*.json")), default=-1)
        self._named: set[str] = set()
        for batch in (self._newest - 1, self._newest):
            self._manifest = _body(state_dir / "manifests" / f"{batch:012d}.json")
            for kept in (*self._manifest.get("buckets", ()), *self._manifest.get("stores", ())):
                self._named |= {kept["section"]["file"], *(i["file"] for i in kept.get("indexes", {}).values())}
        self._reached = self._manifest.get("extra", {}).get("reached", {}).get("streams", {})
        self._sources = {s["name"]: s["source"]["kind"] for s in _json(state_dir / "catalog.json").get("streams", ())}
        used = _body(state_dir / "intents" / f"{self._newest:012d}.json").get("tables", {})
        tables = (*_json(state_dir / "tables.json").values(), *used.values())
        self._tables = {table["version"]["file"] for table in tables}
        """The versions in force, and those that the last batch has used: they go after the next."""

    def leaked(self) -> list[str]:
        """The files without any."""
        places = {
            "buckets": self._is_bucket,
            "spill": self._is_litter,
            "manifests": self._is_recent,
            "intents": self._is_recent,
            "results": self._is_result,
            "sources": self._is_source,
            "tables": lambda name: name in self._tables,
            "rejected": self._is_rejected,
        }
        found = []
        for name in files_below(self._state_dir):
            rule: Callable[[str], bool] = places.get(name.split("/")[0], FIXED.__contains__)
            if not rule(name):
                found.append(name)
        return found

    def _is_bucket(self, name: str) -> bool:
        return name in self._named or self._is_litter(name)

    def _is_litter(self, name: str) -> bool:
        match = _OF_BATCH.fullmatch(Path(name).name)
        since = self._newest - _COLLECTED_EVERY
        return name in self._litter and match is not None and since < int(match[1]) <= self._newest

    def _is_recent(self, name: str) -> bool:
        return Path(name).name in {f"{batch:012d}.json" for batch in (self._newest, self._newest - 1)}

    def _is_result(self, name: str) -> bool:
        """Of batches that have happened, of which no other file has any, and of a query that is there."""
        mine = _range(name)
        others = [_range(f"results/{path.name}") for path in (self._state_dir / "results").iterdir()]
        if mine is None or mine[1] > self._newest or sum(o is not None and _overlap(mine, o) for o in others) > 1:
            return False
        return any(section.name in self._manifest["queries"] for section in read_footer(self._state_dir / name))

    def _is_source(self, name: str) -> bool:
        """The definition, the log of files, and units that are not read yet; the last that was read says how many
        there were."""
        _, stream, file = name.split("/")
        unit, kind = _UNIT.fullmatch(file), self._sources.get(stream)
        if unit is not None:
            return kind == "memory" and int(unit[1]) >= self._reached.get(stream, 0) - 1
        return kind is not None and file in ("stream.json", *(["files.log"] if kind == "files" else []))

    def _is_rejected(self, name: str) -> bool:
        _, stream, file = name.split("/")
        match = _OF_BATCH.fullmatch(file)
        return stream in self._sources and match is not None and int(match[1]) <= self._newest


def check_files(client: Client, litter: Collection[str], story: Story) -> None:
    """At the end of a life that has stopped in good order. `litter`: as of `Reasons`, below the disk's root."""
    disk, state_dir = client.place / "disk", client.place / "disk" / "state"
    below = {name.removeprefix("state/") for name in litter}
    leaked = [f"state/{name}" for name in Reasons(state_dir, below).leaked()]
    newest = max((int(path.stem) for path in (state_dir / "manifests").glob("[0-9]*.json")), default=-1)
    for name in files_below(disk / "sinks"):
        file, part = Path(name).name, _PART.fullmatch(Path(name).name)
        if f"sinks/{name}" in litter and file.startswith(".") and file.endswith(".tmp"):
            story.known.append("trust 46")
        elif file != ".thalweg-owner.json" and (part is None or int(part[1]) > newest):
            leaked.append(f"sinks/{name}")
    if leaked:
        story.wrong.append("leaked: " + ", ".join(leaked))


def check_litter(client: Client, story: Story) -> None:
    """In a session that has just been opened over a directory that was left in good order: it has tidied up."""
    state_dir = client.place / "disk" / "state"
    tidied = ("buckets/", "spill/", "tables/", "manifests/", "intents/", "results/")
    names = [name for name in Reasons(state_dir).leaked() if name.startswith(tidied) or name.endswith(".tmp")]
    if names:
        story.wrong.append("still there after the next start: " + ", ".join(names))


def files_below(directory: Path) -> list[str]:
    return sorted(path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.is_file())


def _range(name: str) -> tuple[int, int] | None:
    """The batches of a file of results."""
    match = _BATCHES.fullmatch(Path(name).name)
    return None if match is None else (int(match[1]), int(match[2] or match[1]))


def _overlap(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return one[0] <= other[1] and other[0] <= one[1]


def _json(path: Path) -> Any:
    return json.loads(path.read_bytes()) if path.exists() else {}


def _body(path: Path) -> Any:
    return json.loads(path.read_bytes().split(b"\n")[1]) if path.exists() else {}
