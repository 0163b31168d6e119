"""What Spark's event log says of the shuffles."""

from __future__ import annotations

import json
from pathlib import Path


def settings(directory: Path) -> dict[str, str]:
    """For a Spark that is to write its log there."""
    directory.mkdir(parents=True, exist_ok=True)
    return {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": directory.absolute().as_uri(),
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
    }


def written(directory: Path) -> dict[str, int]:
    """Bytes and records that all tasks wrote for shuffles; read when Spark has stopped."""
    found = {"bytes": 0, "records": 0}
    for path in sorted(p for p in directory.rglob("*") if p.is_file() and not p.name.startswith(".")):
        with path.open() as lines:
            for line in lines:
                if '"SparkListenerTaskEnd"' in line[:60]:
                    metrics = (json.loads(line).get("Task Metrics") or {}).get("Shuffle Write Metrics", {})
                    found["bytes"] += metrics.get("Shuffle Bytes Written", 0)
                    found["records"] += metrics.get("Shuffle Records Written", 0)
    return found
