"""Streams are joined: what is kept of each, and where an arriving row looks for partners."""

from __future__ import annotations

import pyarrow as pa
from tests.golden.cases.streams import joined, keyed
from tests.golden.transcript import Transcript


def two(told: Transcript) -> None:
    """Two streams, near one another in time or in the same tumbling window."""
    told.sql(joined(2))
    told.sql("""
        CREATE QUERY pairs AS SELECT a.v AS v, b.v AS w FROM a JOIN b ON a.x = b.x WITHIN 5 SECONDS;
        CREATE QUERY together AS SELECT a.v AS v, b.v AS w
          FROM a JOIN b ON a.z = b.z AND window(a.ts, '10 seconds') = window(b.ts, '10 seconds');
    """)
    told.explain()
    told.explain("pairs")


def three(told: Transcript) -> None:
    """A chain of three: from the middle both ends are one step away, from an end the other is two."""
    told.sql(joined(3))
    told.sql("""
        CREATE QUERY chain AS SELECT a.v AS v, b.v AS w, c.v AS u
          FROM a JOIN b ON a.x = b.x WITHIN 5 SECONDS JOIN c ON b.y = c.y WITHIN 2 SECONDS;
    """)
    told.explain()


def four(told: Transcript) -> None:
    """A star of four: one probe by one key finds the partners in any order."""
    told.sql(joined(4))
    told.sql("""
        CREATE QUERY star AS SELECT a.v AS v, b.v AS w, c.v AS u, d.v AS t
          FROM a JOIN b ON a.x = b.x WITHIN 5 SECONDS JOIN c ON a.x = c.x WITHIN 5 SECONDS
          JOIN d ON a.y = d.y WITHIN 5 SECONDS;
    """)
    told.explain()


def five(told: Transcript) -> None:
    """A chain of five, and queries over parts of it, share what they have in common."""
    told.open(slots=4)
    told.sql(joined(5))
    told.sql("""
        CREATE QUERY whole AS SELECT a.v AS v, e.v AS w
          FROM a JOIN b ON a.x = b.x WITHIN 5 SECONDS JOIN c ON b.y = c.y WITHIN 5 SECONDS
          JOIN d ON c.z = d.z WITHIN 5 SECONDS JOIN e ON d.x = e.x WITHIN 5 SECONDS;
        CREATE QUERY part AS SELECT b.v AS v, d.v AS w
          FROM b JOIN c ON b.y = c.y WITHIN 5 SECONDS JOIN d ON c.z = d.z WITHIN 1 SECOND;
    """)
    told.explain()
    told.explain("part")


def bounds_and_keys(told: Transcript) -> None:
    """Several keys, computed keys, lopsided bounds, selections on one side and conditions on the joined row."""
    told.sql(joined(2))
    told.sql("""
        CREATE QUERY picky AS SELECT a.v AS v, b.v AS w
          FROM a JOIN b ON a.x = b.x AND a.y + 1 = b.y
          AND b.ts BETWEEN a.ts - INTERVAL 1 SECOND AND a.ts + INTERVAL 1 MINUTE
          WHERE a.v > 10 AND abs(b.v) < 5 AND a.v < b.z;
    """)
    told.explain()
    told.explain("picky")


def with_itself(told: Transcript) -> None:
    """A stream joined with itself is kept once."""
    told.sql(joined(1))
    told.sql("""
        CREATE QUERY again AS SELECT f.v AS v, l.v AS w
          FROM a f JOIN a l ON f.x = l.x AND l.ts > f.ts AND l.ts <= f.ts + INTERVAL 10 SECONDS;
    """)
    told.explain()


def outer(told: Transcript) -> None:
    """Rows without a partner are decided by the watermark."""
    told.sql(joined(2))
    told.sql("""
        CREATE QUERY kept AS SELECT a.v AS v, b.v AS w FROM a LEFT JOIN b ON a.x = b.x WITHIN 5 SECONDS;
        CREATE QUERY all_rows AS SELECT a.v AS v, b.v AS w FROM a FULL OUTER JOIN b ON a.x = b.x WITHIN 2 SECONDS;
    """)
    told.explain()
    told.explain("kept")


def semi_and_anti(told: Transcript) -> None:
    """Whether there is a partner, or none."""
    told.sql(joined(2))
    told.sql("""
        CREATE QUERY matched AS SELECT a.v AS v FROM a LEFT SEMI JOIN b ON a.x = b.x WITHIN 5 SECONDS;
        CREATE QUERY missed AS SELECT a.v AS v FROM a LEFT ANTI JOIN b ON a.x = b.x WITHIN 5 SECONDS;
    """)
    told.explain()
    told.explain("missed")


def static_table(told: Transcript) -> None:
    """A static table is looked up; only streams are kept."""
    told.sql(joined(2))
    told.say("table names: x bigint, name string")
    names = pa.table({"x": pa.array([1, 2], pa.int64()), "name": ["one", "two"]})
    told.session.create_table("names", names)
    told.sql("""
        CREATE QUERY named AS SELECT a.v AS v, names.name AS name FROM a JOIN names ON a.x = names.x;
        CREATE QUERY pairs AS SELECT a.v AS v, names.name AS name
          FROM a JOIN b ON a.y = b.y WITHIN 5 SECONDS JOIN names ON b.x = names.x;
    """)
    told.explain()
    told.explain("named")
    told.explain("pairs")


def into_windows(told: Transcript) -> None:
    """What is joined goes into windows, which share a pass as those of any stream."""
    told.sql(joined(2))
    told.sql("""
        CREATE QUERY totals AS SELECT a.x AS x, sum(b.v) AS s
          FROM a JOIN b ON a.x = b.x WITHIN 5 SECONDS GROUP BY a.x, window(a.ts, '1 minute');
        CREATE QUERY totals_of_some AS SELECT a.x AS x, avg(b.v) AS m
          FROM a JOIN b ON a.x = b.x WITHIN 5 SECONDS WHERE a.v > 50 GROUP BY a.x, window(a.ts, '1 minute');
        CREATE QUERY pairs AS SELECT a.v AS v, b.v AS w FROM a JOIN b ON a.x = b.x WITHIN 5 SECONDS;
    """)
    told.explain()
    told.explain("totals")


def after_batches(told: Transcript) -> None:
    """What was found and what is held."""
    told.sql(joined(3))
    told.sql("""
        CREATE QUERY chain AS SELECT a.v AS v, b.v AS w, c.v AS u
          FROM a JOIN b ON a.x = b.x WITHIN 2 SECONDS JOIN c ON b.y = c.y WITHIN 2 SECONDS;
        CREATE QUERY pairs AS SELECT a.v AS v, b.v AS w FROM a JOIN b ON a.x = b.x WITHIN 1 SECOND WHERE a.v < 10;
    """)
    for start in (0, 5):
        rows = {name: keyed(100, start=start, x=25, y=50) for name in "abc"}
        told.run("25 different x, 50 different y", **rows)
    told.explain()
    told.explain("pairs")
