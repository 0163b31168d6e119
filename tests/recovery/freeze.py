"""Makes what `test_frozen.py` opens. Run by hand, from the root of the repository.

    python -m tests.recovery.freeze cases
        draws the rows of every case and asks Spark what its queries give: frozen/CASE.json
    PYTHONPATH=OTHER/src:. python -m tests.recovery.freeze archives [CASE ...]
        runs every case with the release whose source is in OTHER, once to a clean stop and once until it is killed,
        and packs the state directories: frozen/format-N-CASE-LIFE.tar.xz

Cases first: the archives hold their rows. An archive of a format that later releases still read is not made again:
those of formats 2 to 4 were made when this module spoke their release's language.

A life that is killed ends after the manifest of its last batch, before sinks are given anything of it. Up to format 4
it ended after the intent, or after the sinks, as the case says.
"""

from __future__ import annotations

import getpass
import io
import os
import random
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from tests.recovery.frozen_case import FROZEN, LIVES, OWN, Case, Program, load_case, save_case
from tests.support.join_oracle import expected as expected_of_join
from tests.support.unsettled import random_dealing, random_partitioning

import thalweg
from thalweg import faults
from thalweg.engine.spark import create_session
from thalweg.model.manifest import FORMAT
from thalweg.model.plan import route_keys
from thalweg.model.probe_order import OrderedJoin, OrdersInForce, ProbeOrder
from thalweg.state import term
from thalweg.state.manifest import latest_manifest
from thalweg.state.places import open_storage
from thalweg.testing.oracle import Feed, expected

SECOND = 1_000_000
_SEED = 22
_FED, _REST = 4, 3
_PHASE = "batch.manifest:2"
"""Of the batch that closes windows."""


# the cases


def events(rows: int = 24) -> Feed:
    """Some rows are late for every window, some for none; keys and values are missing now and then."""
    rng = random.Random(_SEED)
    batches = []
    for batch in range(_FED + _REST):
        times = [1_000 * SECOND + int((batch * 6 + rng.uniform(-5, 5)) * 1_000) * 1_000 for _ in range(rows)]
        columns = {
            "ts": pa.array(times).cast(pa.timestamp("us", "UTC")),
            "k": pa.array([rng.choice((None, 1, 2, 3, 4)) for _ in range(rows)], pa.int32()),
            "pack": pa.array([rng.choice((None, "gold", "ruby", "jade")) for _ in range(rows)], pa.string()),
            "price": pa.array([rng.choice((None, *(n / 4 for n in range(40)))) for _ in range(rows)], pa.float64()),
            "cost": pa.array([Decimal(rng.randrange(10_000)).scaleb(-2) for _ in range(rows)], pa.decimal128(8, 2)),
        }
        batches.append(pa.table(columns))
    return Feed("events", "ts", 3 * SECOND, tuple(batches))


def joined(stream: str, rows: int = 16) -> Feed:
    """Rows that find a few partners each."""
    rng = random.Random(f"{_SEED} {stream}")
    batches = []
    for batch in range(_FED + _REST):
        times = [1_000 * SECOND + int((batch * 3 + rng.uniform(-1.5, 3)) * 20) * 50_000 for _ in range(rows)]
        columns = {
            "id": pa.array(range(batch * rows, batch * rows + rows), pa.int64()),
            "a": pa.array([rng.choice((None, 1, 2, 3, 4, 5)) for _ in range(rows)], pa.int64()),
            "b": pa.array([rng.choice((None, "n", "e", "s", "w")) for _ in range(rows)], pa.string()),
            "x": pa.array([rng.randint(-50, 50) for _ in range(rows)], pa.int32()),
            "ts": pa.array(times).cast(pa.timestamp("us", "UTC")),
        }
        batches.append(pa.table(columns))
    return Feed(stream, "ts", SECOND, tuple(batches))


AGGREGATES = {
    "of_packs": "SELECT pack, count(*) AS n, sum(price) AS s, avg(price) AS a, min(price) AS low, max(cost) AS high, "
    "window.end AS until FROM events GROUP BY pack, window(ts, '10 seconds')",
    "of_keys": "SELECT k, count(DISTINCT pack) AS packs, median(price) AS m, sum(cost) AS c, window.start AS since "
    "FROM events WHERE k > 1 GROUP BY k, window(ts, '12 seconds', '4 seconds')",
    "of_both": "SELECT k, pack, count(*) AS n, window.end AS until FROM events "
    "GROUP BY k, pack, window(ts, '20 seconds', '5 seconds') HAVING count(*) > 2",
    "best": "SELECT pack, sum(price) AS s, window.end AS until FROM events WHERE pack IS NOT NULL "
    "GROUP BY pack, window(ts, '10 seconds', '5 seconds') ORDER BY s DESC NULLS LAST, pack LIMIT 2",
    "of_all": "SELECT count(*) AS n, percentile(price, 0.9) AS p, stddev_pop(price) AS d, min_by(cost, ts) AS first, "
    "window.end AS until FROM events GROUP BY window(ts, '8 seconds')",
    "dear": "SELECT k, upper(pack) AS pack, price * 2 AS twice, ts FROM events WHERE price > 4",
    "called": "SELECT pack, count(price) AS n, window.end AS until FROM events "
    "GROUP BY pack, window(ts, '6 seconds')",
}
OWNED = {
    "totals": "SELECT pack, own_total(k) AS s, window.end AS until FROM events "
    "GROUP BY pack, window(ts, '8 seconds', '4 seconds')",
    "means": "SELECT k, own_mean(price) AS m, count(*) AS n, window.end AS until FROM events "
    "GROUP BY k, window(ts, '10 seconds')",
    "medians": "SELECT pack, own_median(price) AS m, own_total(k) AS s, window.end AS until FROM events "
    "GROUP BY pack, window(ts, '20 seconds')",
}
_CHAIN = "FROM r JOIN s ON r.a = s.a WITHIN 1 SECOND JOIN t ON s.b = t.b WITHIN 1 SECOND"
JOINS = {
    "chain": f"SELECT r.id AS i, s.id AS j, t.id AS l {_CHAIN}",
    "part": f"SELECT r.id AS i, t.id AS l, t.x AS x {_CHAIN} WHERE r.x > 0",
    "pairs": "SELECT r.id AS i, s.id AS j, r.x + s.x AS x FROM r JOIN s ON r.a = s.a "
    "AND s.ts BETWEEN r.ts - INTERVAL 1 SECOND AND r.ts + INTERVAL 2 SECONDS",
    "unpaired": "SELECT r.id AS i, t.id AS l FROM r LEFT JOIN t ON r.a = t.a AND r.b = t.b WITHIN 2 SECONDS",
    "alone": "SELECT s.id AS j, s.b AS b FROM s LEFT ANTI JOIN t ON s.a = t.a AND s.b = t.b WITHIN 1 SECOND",
    "named": "SELECT r.id AS i, names.name AS name FROM r JOIN names ON r.a = names.a WHERE r.x < 0",
}
JOINED_WINDOWS = {
    "paired": "SELECT r.a AS a, count(*) AS n, sum(s.x) AS x, window.end AS until FROM r JOIN s ON r.a = s.a "
    "WITHIN 1 SECOND GROUP BY r.a, window(r.ts, '5 seconds')",
    "chained": f"SELECT s.b AS b, count(*) AS n, max(t.x) AS x, window.end AS until {_CHAIN} "
    "GROUP BY s.b, window(s.ts, '6 seconds', '3 seconds')",
}


def cases() -> dict[str, Case]:
    later = {"later": "SELECT k, ts FROM events WHERE k < 3"}
    later_joined = {"later": "SELECT id, x FROM s WHERE x > 10"}
    streams = tuple(joined(stream) for stream in "rst")
    names = pa.table({"a": pa.array([1, 2, 3], pa.int64()), "name": ["one", "two", "three"]})
    return {
        "aggregates": Case((events(),), AGGREGATES, _FED, later, "batch.sinks", called=("called",)),
        "own": Case((events(),), OWNED, _FED, later, "batch.intent"),
        "joins": Case(streams, JOINS, _FED, later_joined, "batch.intent", tables={"names": names}),
        "joined_windows": Case(streams, JOINED_WINDOWS, _FED, later_joined, "batch.sinks"),
    }


def expected_results(spark: SparkSession, case: Case) -> dict[str, pa.Table]:
    """Of every query, by plain Spark SQL over all rows."""
    queries = {**case.queries, **case.later}
    return {name: _expected(spark, case, name, select) for name, select in queries.items()}


def _expected(spark: SparkSession, case: Case, name: str, select: str) -> pa.Table:
    for own, known in OWN.items():
        select = select.replace(own, known)
    feeds = case.lived()
    if len(feeds) > 1 and name not in case.later:
        return expected_of_join(spark, feeds, select, tables={n: [(0, table)] for n, table in case.tables.items()})
    (feed,) = (f for f in feeds if f"FROM {f.stream}" in select)
    return expected(spark, feed, select, since=case.fed + 1 if name in case.later else 0)


def make_cases() -> None:
    spark = create_session("local[2]")
    for name, case in cases().items():
        results = expected_results(spark, case)
        for query, table in results.items():
            assert table.num_rows > 3, (name, query)
        save_case(name, replace(case, expected=results))


# the archives


def live(name: str, life: str, place: Path) -> None:
    """One life of a case, in a process of its own: it may end by a kill."""
    case = load_case(name)
    _hide_machine()
    session = thalweg.connect(place / "state", slots=3, master="local[2]")
    disturb(session)
    program = Program(session, case)
    program.append(0, case.fed)
    session.run_available()
    program.create(case.later)
    if life == "killed":
        program.append(case.fed, case.fed + LIVES[life])
        faults.arm(_PHASE)
        session.run_available()
    session.stop()


def _hide_machine() -> None:
    """Terms say which process on which host has taken them."""
    vars(term).update(socket=SimpleNamespace(gethostname=lambda: "host"), os=SimpleNamespace(getpid=lambda: 1))


def disturb(session: Any) -> None:
    """Every batch runs under a plan of its own, with an intermediate for joins of three streams."""
    runner = session._parts.runner
    commit = runner.adaptations.commit

    def commit_and_propose(learned: Any) -> None:
        commit(learned)
        plan, manifest = runner.plan, runner.manifest
        rng = random.Random(_SEED + manifest.batch)
        runner.adaptations.change("slot_assignment", proposed=random_partitioning(rng, plan))
        keys = sorted(route_keys(plan))
        known = manifest.measured
        known.combining.loads.update({id_: rng.choice([0.1, 1.0]) for id_ in sorted(plan.groupings)})
        known.hot_join_keys.spread.update({key: sorted(rng.sample(range(plan.groups), 5)) for key in keys})
        known.partitioners.dealing.update({key: random_dealing(rng) for key in keys})
        # The same orders in every batch: an intermediate must fill before rows look into it.
        orders = {query: paired_orders(join) for query, join in plan.joins.ordered.items()}
        proposed = OrdersInForce(orders, tuple(orders), reason="to freeze")
        runner.adaptations.change("probe_orders", coming=((0, proposed),))

    runner.adaptations.commit = commit_and_propose


def paired_orders(join: OrderedJoin) -> dict[str, ProbeOrder]:
    """Rows look for all others at once wherever these can be kept joined."""
    orders = dict(join.orders)
    for start in join.relations:
        others = tuple(relation for relation in join.relations if relation != start)
        if join.admits(start, (others,)):
            orders[start] = (others,)
    return orders


def make_archives(names: Sequence[str]) -> None:
    for name in names or cases():
        for life in LIVES:
            with tempfile.TemporaryDirectory() as directory:
                place = Path(directory)
                command = [sys.executable, "-m", "tests.recovery.freeze", "live", name, life, directory]
                ended = subprocess.run(command, check=False).returncode
                assert ended == (-signal.SIGKILL if life == "killed" else 0), (name, life, ended)
                check(place / "state", name, life)
                pack(place, FROZEN / f"format-{FORMAT}-{name}-{life}.tar.xz")


def check(state_dir: Path, name: str, life: str) -> None:
    """The directory is worth keeping."""
    storage = open_storage(state_dir)
    manifest = latest_manifest(storage)
    assert manifest is not None
    assert manifest.batch == _FED + LIVES[life]
    assert bool(manifest.undelivered) == (name == "aggregates"), "nothing for the function"
    assert (storage.find("delivered") is not None) == (name == "aggregates")
    assert manifest.buckets or name == "joins"
    if name == "joins":
        assert any(bucket.relation.startswith("+") for bucket in manifest.stores), "no intermediate"


def pack(place: Path, path: Path) -> None:
    """The same bytes for the same files, and nothing of this machine in them."""
    marks = [str(place), str(Path.home()), os.getcwd(), tempfile.gettempdir(), socket.gethostname()]
    marks += [f"/{getpass.getuser()}/", *sys.path]
    with tarfile.open(path, "w:xz", preset=9) as archive:
        for file in sorted(place.rglob("*")):
            # The lock names a process and a host, and is made anew.
            if not file.is_file() or file.name == "lock":
                continue
            data = file.read_bytes()
            found = [mark for mark in marks if len(mark) > 1 and mark.encode() in data]
            assert not found, (file, found)
            member = tarfile.TarInfo(file.relative_to(place).as_posix())
            member.size, member.mode = len(data), 0o644
            archive.addfile(member, io.BytesIO(data))


if __name__ == "__main__":
    chore, *given = sys.argv[1:]
    if chore == "cases":
        make_cases()
    elif chore == "archives":
        make_archives(given)
    elif chore == "live":
        live(given[0], given[1], Path(given[2]))
