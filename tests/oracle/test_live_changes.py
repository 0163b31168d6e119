"""Oracle: queries created and dropped while the pipeline runs see what they are promised, and disturb nobody."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from tests.support.randomly import Shape, random_feed, random_queries
from tests.support.side import Side

import thalweg
from thalweg.testing.compare import rows_equal
from thalweg.testing.oracle import Feed


def open_stream(session: thalweg.Session, feed: Feed) -> object:
    source = thalweg.memory(feed.schema, max_files_per_batch=1)
    session.create_stream(feed.stream, source, time=feed.time, watermark=f"{feed.delay_us} microseconds")
    return source


@pytest.mark.parametrize("seed", [11, 12])
def test_a_query_created_later_sees_rows_from_then_on(side: Side, state_dir: Path, seed: int) -> None:
    """Nothing is shared with those that run: different keys, or the past would be there too."""
    feed = random_feed(seed, Shape(batches=6))
    first, *others = random_queries(seed, feed, 5)
    with side.connect(state_dir) as session:
        source = open_stream(session, feed)
        early = session.create_query(first.name, first.select)
        for table in feed.batches[:3]:
            source.append(table)
        session.run_available()
        marker = "SELECT first(ts) AS f, window.start AS s FROM events WHERE {} GROUP BY window(ts, '3 seconds')"
        late = session.create_query("late", marker.format("k > -1000"))
        for table in feed.batches[3:]:
            source.append(table)
        session.run_available()
        # The first run ended with a batch without data.
        empty = feed.schema.empty_table()
        whole = Feed(feed.stream, feed.time, feed.delay_us, (*feed.batches[:3], empty, *feed.batches[3:]))
        rows_equal(early.results(), side.expected(whole, first.select), approximate=first.approximate)
        rows_equal(late.results(), side.expected(whole, marker.format("k > -1000"), since=4))
        assert late.status["state"] == "idle"
        assert others


def test_a_query_that_shares_everything_sees_the_past_that_is_kept(side: Side, state_dir: Path) -> None:
    feed = random_feed(21, Shape(batches=6))
    window = "window(ts, '20 seconds', '5 seconds')"
    select = f"SELECT gemPackID, count(*) AS n, window.start AS w FROM events GROUP BY gemPackID, {window}"
    with side.connect(state_dir) as session:
        source = open_stream(session, feed)
        session.create_query("one", select)
        for table in feed.batches[:3]:
            source.append(table)
        session.run_available()
        two = session.create_query("two", select)
        for table in feed.batches[3:]:
            source.append(table)
        session.run_available()
        empty = feed.schema.empty_table()
        whole = Feed(feed.stream, feed.time, feed.delay_us, (*feed.batches[:3], empty, *feed.batches[3:]))
        emissions = side.expected_emissions(whole, select)
        assert two.status["complete_from"] is None
        before = side.expected(Feed(feed.stream, feed.time, feed.delay_us, feed.batches[:3]), select)
        everything = pa.concat_tables([t for _, t in emissions])
        assert two.results().num_rows == everything.num_rows - before.num_rows
        together = pa.concat_tables([before.cast(two.results().schema), two.results()])
        rows_equal(together, everything)


def test_dropping_the_last_user_frees_its_state(side: Side, state_dir: Path) -> None:
    feed = random_feed(31, Shape(batches=4))
    with side.connect(state_dir) as session:
        source = open_stream(session, feed)
        kept = session.create_query("kept", "SELECT count(*) AS n FROM events GROUP BY window(ts, '1 hour')")
        gone = session.create_query(
            "gone", "SELECT gemPackID, max(k) AS m FROM events GROUP BY gemPackID, window(ts, '1 hour')"
        )
        source.append(feed.batches[0])
        source.append(feed.batches[1])
        session.run_available()
        before = session.progress()["state"]["rows"]
        gone.drop()
        with pytest.raises(thalweg.ThalwegError, match="no query named 'gone'"):
            session.query("gone")
        session.run_available()
        assert 0 < session.progress()["state"]["rows"] < before
        assert gone.status["state"] == "dropped"
        again = session.create_query("gone", "SELECT k FROM events WHERE k > 0")
        source.append(feed.batches[2])
        session.run_available()
        assert again.status["state"] == kept.status["state"] == "idle"


@pytest.mark.on_spark
def test_plans_that_are_out_of_force_leave_no_files(side: Side, state_dir: Path) -> None:
    """Spark keeps what is broadcast in a file of the driver's until it is destroyed."""
    directory = Path(side.spark.sparkContext._temp_dir)
    feed = random_feed(61, Shape(batches=4))
    with side.connect(state_dir) as session:
        source = open_stream(session, feed)
        before = set(directory.iterdir())
        for number, table in enumerate(feed.batches):
            session.create_query(f"q{number}", f"SELECT k FROM events WHERE k > {number}")
            source.append(table)
            session.run_available()
        assert len(set(directory.iterdir()) - before) <= 1
