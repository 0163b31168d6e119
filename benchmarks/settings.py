"""Peers with other settings than those they are compared with: whether each is at its best.

    thalweg bench settings [--quick] [--json FILE] [--only NAME ...] [--repetitions N]

Every line is one setting of one peer on one workload, changed, against the same run as the other experiments have it.
A setting that is better by more than a tenth ought to be used by them. Once each unless more repetitions are asked
for: what is looked for is large.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from benchmarks import measure
from benchmarks.measure import Bench, Comparison, Side, side

MINUTES = (2, 32)
TITLE = "Peers with other settings, against those they are compared with"
BETTER = 1.1
"""How many times as fast another setting may be before it has to be used."""
G1 = {"G1 collector": {"spark.driver.extraJavaOptions": "-XX:+UseG1GC"}}
"""The JVM's default."""
OF_SPARK: Mapping[str, Mapping[str, Any]] = {
    "RocksDB": {"system": "spark-rocksdb"},
    **G1,
    "4 shuffle partitions": {"spark.sql.shuffle.partitions": 4},
}
OF_FLINK = {"12 GiB of heap": {"memory": "12g"}, "G1 collector": {"java": "-XX:+UseG1GC"}}
OF_FOREACH: Mapping[str, Mapping[str, Any]] = {
    **G1,
    "2 queries at a time": {"at_a_time": 2},
    "4 queries at a time": {"at_a_time": 4},
    "adaptive execution": {"spark.sql.adaptive.enabled": "true"},
}
NOTES = ("ours: with the setting that is named; theirs: as in the other experiments",)


@dataclass(frozen=True)
class Peer:
    """One on one workload, as it is measured elsewhere, and what else is tried."""

    name: str
    system: str
    work: str
    meaning: str
    files: int
    files_per_batch: int
    others: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """What is different -> settings; `system` and `files` among them."""

    @property
    def usual(self) -> Side:
        return side(self.system, self.work, self.files, files_per_batch=self.files_per_batch)

    def comparisons(self) -> list[Comparison]:
        return [
            Comparison(
                f"{self.name} {different}",
                f"{self.meaning}: {different}",
                self._with(**settings),
                self.usual,
                BETTER,
                better="lower",
            )
            for different, settings in self.others.items()
        ]

    def _with(self, system: str = "", files: int = 0, **settings: Any) -> Side:
        made = side(system or self.system, self.work, files or self.files, files_per_batch=self.files_per_batch)
        return made.with_settings(**settings)


FACTS = {
    "batches of half the size": {"files_per_batch": 2},
    "batches of twice the size": {"files": 24, "files_per_batch": 8},
}
INTERVAL = {
    "batches of two fifths the size": {"files_per_batch": 2},
    "batches of twice the size": {"files": 60, "files_per_batch": 10},
}
AJOIN = Peer(
    "spark-ajoin-1",
    "spark",
    "ajoin-1",
    "plain Spark, 1 query of AJoin's",
    40,
    10,
    {
        **G1,
        "batches of half the size": {"files_per_batch": 5},
        "batches of twice the size": {"files": 60, "files_per_batch": 20},
    },
)
PEERS = (
    Peer("spark-8", "spark", "facts/8", "plain Spark, 8 aggregations", 8, 4, {**OF_SPARK, **FACTS}),
    Peer("spark-interval", "spark", "interval", "plain Spark, 1 interval join", 15, 5, {**OF_SPARK, **INTERVAL}),
    AJOIN,
    Peer(
        "foreach-20", "spark-foreach", "facts/20x1", "one foreachBatch for 20 aggregations", 12, 4, OF_FOREACH | FACTS
    ),
    Peer("flink-8", "flink", "facts/8", "Flink SQL, 8 aggregations", 6, 2, OF_FLINK),
    Peer("flink-interval", "flink", "interval", "Flink SQL, 1 interval join", 40, 15, OF_FLINK),
)
QUICK = replace(AJOIN, files=20, others=G1)


def main(arguments: list[str]) -> int:
    options = measure.parser("settings", __doc__, [peer.name for peer in PEERS]).parse_args(arguments)
    options.repetitions = options.repetitions or 1
    bench = Bench("settings", TITLE, options)
    peers = [QUICK] if options.quick else [peer for peer in PEERS if not options.only or peer.name in options.only]
    comparisons = [c for peer in peers for c in peer.comparisons()]
    bench.run((), [s for peer in peers for s in (peer.usual, *(c.ours for c in peer.comparisons()))])
    bench.result(bench.lines(comparisons), notes=NOTES)
    return 0
