"""The pipeline of `pipeline_program` on Spark, its state in an object store: a process of its own, since workers get
credentials from the environment that Spark was started in.

    python -m tests.support.object_store_on_spark URL     prints the results as JSON
"""

from __future__ import annotations

import json
import sys

from tests.support.pipeline_program import Program, finished

import thalweg
from thalweg.errors import SourceError


def main(place: str) -> None:
    found = finished(Program(lambda: thalweg.connect(place)), 2)
    with thalweg.connect(f"{place}/other") as session:
        spark = session._parts.engine.spark  # type: ignore[attr-defined]
        stream = spark.readStream.format("rate").load().selectExpr("timestamp AS ts", "value AS v")
        try:
            session.create_stream("rate", stream, time="ts", watermark="1 second")
        except SourceError as error:
            print(json.dumps({"results": found, "refused": str(error)}))


if __name__ == "__main__":
    main(sys.argv[1])
