"""One system fed at a pace, in a process of its own: prints one line of JSON with what it measured.

    python -m benchmarks.paced thalweg --work facts/8 --seconds 20
    python -m benchmarks.paced thalweg --work ajoin-20 --scenario sc1:1:20:5

Scenarios: `sc1:QUERIES_PER_SECOND:MOST:HOLD`, `sc2:COUNT:EVERY:ROUNDS:HOLD`, `all:MOST:SECONDS` (hold, seconds: how
long the pace goes on after the last request).
"""

from __future__ import annotations

import argparse
import json

from benchmarks.paced import adhoc_side, latency_side
from benchmarks.paced.scenario import Scenario, sc1, sc2, up_front
from benchmarks.paced.sustained import Pace
from benchmarks.workloads import named


def scenario(text: str) -> Scenario:
    kind, *numbers = text.split(":")
    given = [float(number) for number in numbers]
    if kind == "sc1":
        return sc1(given[0], int(given[1]), given[2])
    if kind == "sc2":
        return sc2(int(given[0]), given[1], int(given[2]), given[3])
    return up_front(int(given[0]), given[1])


def run() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("system", choices=["thalweg", "spark"])
    parser.add_argument("--work", required=True)
    parser.add_argument("--scenario", type=scenario)
    parser.add_argument("--rate", type=float, help="rows/s of all streams; else a share of what the system sustains")
    parser.add_argument("--share", type=float, default=0.7)
    parser.add_argument("--files", type=int, default=12, help="of each stream, to measure what it sustains")
    parser.add_argument("--files-per-batch", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--most-rows", type=int, default=20_000_000, help="of each stream")
    given = parser.parse_args()
    pace = Pace(given.rate, given.share, given.files, given.files_per_batch, given.seconds, given.most_rows)
    work = named(given.work)
    if given.scenario is None:
        result = latency_side.run(given.system, work, pace)
    else:
        result = adhoc_side.run(given.system, work, given.scenario, pace)
    print("RESULT " + json.dumps(result), flush=True)


if __name__ == "__main__":
    run()
