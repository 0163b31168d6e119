"""Chaos: what is right. Every sink has each row of the undisturbed run once, the state means the same, and every file
has a reason to be there.

The reasons are written down here once more, from the layout of a state directory, and not asked of the code that
deletes files.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from tests.recovery.chaos_client import Client
from tests.recovery.chaos_world import World

from thalweg.model.manifest import Manifest, StreamProgress
from thalweg.state.manifest import latest_manifest
from thalweg.testing import LocalSession
from thalweg.testing.compare import Row, difference, unmatched

KNOWN = {
    "gap": "more waited for a sink than may: its query says what is missing",
    "by design": "a join that came later finds, before its complete_from, the rows that happen to be held still",
}
Trace = Sequence[tuple[str, str]]
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
    gaps: dict[str, dict[int, int]] = field(default_factory=dict)
    """As of `Client`."""


def look(client: Client, session: LocalSession) -> Outcome:
    return Outcome(
        client.results(session),
        client.rejected(session),
        described(latest_manifest(session.storage)),
        client.errors(session),
        dict(client.complete_from),
        dict(client.gaps),
    )


def described(manifest: Manifest | None) -> dict[str, Any]:
    """What a manifest says of the state, whichever tasks wrote it and whenever it was merged."""
    if manifest is None:
        return {}
    return {
        "streams": {name: _told(p) for name, p in manifest.streams.items()},
        "closed": {n: us for n, us in manifest.closed.items() if n in manifest.streams},
        "reached": manifest.reached.streams,
        "queries": {e.query.name: (e.state, e.emitted) for e in manifest.queries.values()},
    }


def _told(p: StreamProgress) -> tuple[int | None, ...]:
    return p.max_time_us, p.rows, p.late, p.rejected, p.untimed, p.ahead, p.incomplete, p.active_us


def check_sums(client: Client, session: LocalSession, story: Story) -> None:
    """What a stream was given is taken or set aside, and what is set aside is kept."""
    manifest = latest_manifest(session.storage)
    for stream, given in client.inputs.given(client.steps[: client.done]).items():
        if manifest is None or manifest.reached.streams.get(stream, 0) < given.units:
            continue  # nobody reads it any more
        p, kept = manifest.streams.get(stream, StreamProgress()), session.rejected(stream).num_rows
        found = (p.rows + p.rejected, p.untimed, p.ahead, p.rejected)
        if found != (given.rows, given.untimed, given.ahead, kept):
            story.wrong.append(
                f"stream {stream} was given {given} and has {p}; {kept} rows are kept that were set aside"
            )


def compare(world: World, found: Outcome, wanted: Outcome, story: Story) -> None:
    """Only a query that says so may lack rows, and at least those that it has counted."""
    for name, error in found.errors.items():
        if name not in wanted.errors:
            story.wrong.append(f"query {name} failed: {error}")
    partial, gaps = set(), {name for name in found.gaps if found.gaps[name] != wanted.gaps.get(name)}
    for name, query in world.queries.items():
        title = f"query {name} into {query.sink}: {query.select}"
        open_until = _open_until(name, found, wanted)
        table, right = found.results[name], wanted.results[name]
        if _compare(title, table, right, query.approximate, name in gaps, story, open_until):
            partial.add(name)
        if name in gaps:
            _check_gap(name, found, right, story)
    story.known += ["by design"] * bool(partial) + ["gap"] * bool(gaps)
    read = {stream for name in gaps for stream in _streams_of(world, name)}
    for stream, rows in wanted.rejected.items():
        if stream not in read:
            _compare(f"rows of {stream} that cannot be read", found.rejected[stream], rows, (), False, story)
    _compare_state(found.state, wanted.state, {*read, *gaps, *partial}, story)


def _check_gap(name: str, found: Outcome, wanted: pa.Table, story: Story) -> None:
    """What its query has counted as made, its sink has; what it has counted as missing is missing."""
    told, missing = found.state.get("queries", {}).get(name), sum(found.gaps[name].values())
    rows = found.results[name].num_rows
    if rows + missing > wanted.num_rows:
        story.wrong.append(
            f"query {name} has {rows} rows and lacks {missing}, by its own count, of {wanted.num_rows}"
        )
    if told is not None and told[1] != rows:
        story.wrong.append(f"query {name} has made {told[1]} rows, by its own count, and its sink has {rows}")


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

FIXED = {"catalog.json", "delivered", "lock", "requests/last", "tables.json", "thalweg.json", "timeline"}
_KEPT_MANIFESTS, _KEPT_TERMS = 2, 64
_NUMBER = re.compile(r"\d{12}")
_OF_BATCH = re.compile(r"(\d{12})-.+\.arrow")
_UNIT = re.compile(r"(\d{10})\.arrow")
_PIECE = re.compile(r"(\d{12})(?:-(\d{12}))?")
_PART = re.compile(r"part-(\d{12})(?:\.parquet|/\d{5}\.parquet)")
_IN_SINK = re.compile(r"\.{0,2}part-(\d{12})")
_LEFT = re.compile(r"\.part-\d{12}(?:-\d+)?-[0-9a-f]{12}(?:/\d{5})?(?:\.parquet)?|(?:\S+/)?\..+\.tmp")
"""What a crash in a files sink leaves: results that were prepared, and temporaries."""
_COLLECTED_EVERY = 64
"""Batches after which files are looked for that no manifest names, at the latest."""


class Reasons:
    """Why a file may be in a state directory whose session has ended in good order.

    `litter`: files that attempts which did not count have written. They may lie among buckets and results put aside
    until the collector comes, and not longer. `retired`: versions of tables that were replaced after the last batch.
    `unread`: streams that nobody reads any more, so that nobody tidies up their logs.
    """

    def __init__(
        self,
        state_dir: Path,
        litter: Collection[str] = (),
        retired: Collection[str] = (),
        unread: Collection[str] = (),
    ) -> None:
        self._state_dir = state_dir
        self._litter = litter
        self._unread = unread
        numbers = sorted(int(path.name) for path in (state_dir / "manifests").glob("[0-9]*") if path.name.isdigit())
        self._kept = {f"manifests/{number:012d}" for number in numbers[-_KEPT_MANIFESTS:]}
        self._newest = max(numbers, default=-1)
        self._named: set[str] = set()
        manifest: Any = {}
        for name in sorted(self._kept):
            manifest = _body(state_dir / name)
            self._named |= {manifest["queries"], manifest["lanes"]}
            self._named |= {entry["query"] for entry in _body(state_dir / manifest["queries"])}
            self._named |= {*_files_named(manifest), *manifest.get("waiting", ())}
            for part in manifest.get("waiting", ()):
                self._named |= set(_files_named({"undelivered": _body(state_dir / part)}))
        self._reached = manifest.get("reached", {}).get("streams", {})
        self._through = manifest.get("through", 0)
        self._sources = {s["name"]: s["source"]["kind"] for s in _body(state_dir / "catalog.json")}
        self._tables = {*retired, *(table["version"]["file"] for table in _body(state_dir / "tables.json"))}

    def leaked(self) -> list[str]:
        """The files without any."""
        places: dict[str, Callable[[str], bool]] = {
            "buckets": lambda name: name in self._named or self._is_litter(name),
            "spill": self._is_litter,
            "results": self._named.__contains__,
            "prepared": lambda name: name in self._named or self._is_litter(name),
            "parts": self._named.__contains__,
            "queries": self._named.__contains__,
            "manifests": self._kept.__contains__,
            "requests": self._is_request,
            "terms": self._is_term,
            "sources": self._is_source,
            "tables": self._tables.__contains__,
            "rejected": self._is_rejected,
        }
        found = files_below(self._state_dir)
        return [n for n in found if n not in FIXED and not places.get(n.split("/")[0], lambda _: False)(n)]

    def _is_litter(self, name: str) -> bool:
        match = _OF_BATCH.fullmatch(Path(name).name)
        since = self._newest - _COLLECTED_EVERY
        return name in self._litter and match is not None and since < int(match[1]) <= self._newest

    def _is_request(self, name: str) -> bool:
        """One that no manifest has applied."""
        number = name.removeprefix("requests/")
        return _NUMBER.fullmatch(number) is not None and int(number) > self._through

    def _is_term(self, name: str) -> bool:
        others = [path.name for path in (self._state_dir / "terms").iterdir() if _NUMBER.fullmatch(path.name)]
        return name.removeprefix("terms/") in sorted(others)[-_KEPT_TERMS:]

    def _is_source(self, name: str) -> bool:
        """Units that are not read yet, and the last that was; their number; the log of files, each entry once."""
        _, stream, *below = name.split("/")
        kind, file = self._sources.get(stream), below[-1]
        if kind == "files":
            return len(below) == 2 and below[0] == "files" and (self._is_piece(name) or stream in self._unread)
        unit = _UNIT.fullmatch(file)
        is_memory = kind == "memory" and len(below) == 1
        return is_memory and (file == "units" or bool(unit and int(unit[1]) >= self._reached.get(stream, 0) - 1))

    def _is_piece(self, name: str) -> bool:
        """A piece of a log, none of which is in another."""
        mine, place = _entries(self._state_dir / name), self._state_dir / Path(name).parent
        if mine is None:
            return False
        others = [_entries(path) for path in place.iterdir() if path.name != Path(name).name]
        return not any(other is not None and other[0] <= mine[0] <= mine[1] <= other[1] for other in others)

    def _is_rejected(self, name: str) -> bool:
        _, stream, file = name.split("/")
        match = _OF_BATCH.fullmatch(file)
        return stream in self._sources and match is not None and int(match[1]) <= self._newest


def _files_named(manifest: Mapping[str, Any]) -> Iterable[str]:
    for bucket in manifest.get("buckets", ()):
        yield bucket["section"]["file"]
        yield from (index["section"]["file"] for index in bucket.get("indexes", {}).values())
    yield from (result["file"] for result in manifest.get("results", ()))
    yield from (section["file"] for p in manifest.get("undelivered", ()) for section in p.get("sections", ()))


def _entries(path: Path) -> tuple[int, int] | None:
    """The first and the last entry of a piece of a log."""
    match = _PIECE.fullmatch(path.name)
    if match is None or not path.read_bytes():
        return None
    first, count = int(match[1]), len(_body(path)["entries"])
    assert match[2] is None or int(match[2]) == first + count - 1, path
    return first, first + count - 1


def check_files(client: Client, trace: Trace, began: int, litter: Collection[str], story: Story) -> None:
    """At the end of a life that has stopped in good order. `trace`: all verbs, from `began` on its own; `litter`: as
    of `Reasons`, below the disk's root."""
    disk, state_dir = client.place / "disk", client.place / "disk" / "state"
    below = {name.removeprefix("state/") for name in litter}
    reasons = Reasons(state_dir, below, _retired(trace), _unread(client))
    leaked = [f"state/{name}" for name in reasons.leaked()]
    if not any(verb == "link" and _MANIFEST.fullmatch(path) for verb, path in trace[began:]):
        # A power cut may have brought them back. They go with the first batch of a life, and this one had none.
        brought_back = ("state/parts/", "state/queries/", "state/sources/")
        leaked = [name for name in leaked if not name.startswith(brought_back)]
    used = _used(trace[began:])
    newest = max((int(path.name) for path in (state_dir / "manifests").glob("[0-9]*")), default=-1)
    for name in files_below(disk / "sinks"):
        query, _, file = name.partition("/")
        part, of_batch = _PART.fullmatch(file), _IN_SINK.match(file)
        # What an earlier life has left goes when the sink is used again, for this batch or a later one.
        batch = int(of_batch[1]) if of_batch else -1
        is_left = _LEFT.fullmatch(file) is not None and (query not in used or batch > used[query])
        is_left |= f"sinks/{name}" in litter and _LEFT.fullmatch(file) is not None
        if file != ".thalweg-owner.json" and not is_left and (part is None or int(part[1]) > newest):
            leaked.append(f"sinks/{name}")
    if leaked:
        story.wrong.append("leaked: " + ", ".join(leaked))


def _unread(client: Client) -> set[str]:
    """Streams that no query reads any more."""
    told = client.steps[: client.done]
    names = {query.name for kind, query in told if kind == "create"} - {name for kind, name in told if kind == "drop"}
    read = {stream for name in names for stream in _streams_of(client.world, name)}
    return {feed.stream for feed in client.world.feeds} - read


def _used(trace: Trace) -> dict[str, int]:
    """Query -> the newest batch that its sink has shown. What found no more place goes with a later one."""
    used: dict[str, int] = {}
    for _, path in trace:
        if shown := _SHOWN.fullmatch(path):
            query = path.split("/")[1]
            used[query] = max(used.get(query, -1), int(shown[1]))
    return used


def _retired(trace: Trace) -> set[str]:
    """The versions of tables that go after the next batch."""
    commits = [n for n, (verb, path) in enumerate(trace) if verb == "link" and _MANIFEST.fullmatch(path)]
    if ("replace", "state/tables.json") not in trace[commits[-1] if commits else 0 :]:
        return set()
    return {path.removeprefix("state/") for _, path in trace if path.startswith("state/tables/")}


def check_litter(client: Client, story: Story) -> None:
    """In a session that has just been opened over a directory that was left in good order: it has tidied up."""
    state_dir = client.place / "disk" / "state"
    # What another session might be about to name goes with this one's first manifest.
    tidied = ("spill/", "tables/", "terms/")
    names = [name for name in Reasons(state_dir).leaked() if name.startswith(tidied) or name.endswith(".tmp")]
    if names:
        story.wrong.append("still there after the next start: " + ", ".join(names))


def files_below(directory: Path) -> list[str]:
    return sorted(path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.is_file())


def _body(path: Path) -> Any:
    """What is behind the header line."""
    return json.loads(path.read_bytes().split(b"\n")[1]) if path.exists() else {}


# -- the order of verbs ----------------------------------------------------------------------------------------

_ONCE = re.compile(
    r"state/(?:(?:manifests|requests|terms)/\d{12}|(?:parts|queries)/.+"
    r"|sources/\w+/\d{10}\.arrow|sources/\w+/files/\d{12})"
)
_MANIFEST = re.compile(r"state/manifests/(\d{12})")
_SHOWN = re.compile(r"sinks/\w+/part-(\d{12})(?:\.parquet)?")


def check_verbs(trace: Trace, story: Story) -> None:
    """Over all lives: what is created once is never replaced, and no file of a batch is shown before its manifest is
    durable."""
    linked: set[str] = set()
    durable: set[str] = set()
    for verb, path in trace:
        if verb == "replace" and _ONCE.fullmatch(path):
            story.wrong.append(f"replaced: {path}")
        if (manifest := _MANIFEST.fullmatch(path)) and verb in ("link", "replace"):
            linked.add(manifest[1])
        elif (verb, path) == ("sync_directory", "state/manifests"):
            durable |= linked
        elif verb == "replace" and (shown := _SHOWN.fullmatch(path)) and shown[1] not in durable:
            story.wrong.append(f"shown before its manifest: {path}")
