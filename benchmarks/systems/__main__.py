"""One system on one workload, in a process of its own: prints what it measured as a line of JSON.

python -m benchmarks.systems SYSTEM --work NAME --directory DIR --files N [--out DIR] [--set KEY=VALUE ...]
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from benchmarks.systems import SYSTEMS, Given, run
from benchmarks.workloads import make_files, named


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.systems", description=__doc__)
    parser.add_argument("system", choices=list(SYSTEMS))
    parser.add_argument("--work", required=True, help="the name of a workload")
    parser.add_argument("--directory", type=Path, required=True, help="where its files are, or are made")
    parser.add_argument("--files", type=int, required=True, help="of each stream")
    parser.add_argument("--out", type=Path, help="where results go")
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="files_per_batch, shuffle, ...")
    options = parser.parse_args()
    work = named(options.work)
    make_files(work, options.files, options.directory)
    settings = dict(setting.split("=", 1) for setting in options.set)
    found = run(options.system, Given(work, options.directory, options.files, options.out, settings))
    print("RESULT " + json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
