"""Unit: what happens is told through `logging`, one line an event, and nothing is printed unasked."""

from __future__ import annotations

import logging
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from msgspec import structs

import thalweg
from thalweg.adapt.probe_orders.adaptation import OrderProbes
from thalweg.adapt.slot_assignment.adaptation import AssignSlots
from thalweg.batch.events import tell_batch
from thalweg.model.measurements import KeyGroupMoves
from thalweg.observe import log
from thalweg.testing import LocalSession
from thalweg.testing.memory_storage import MemoryStorage

Open = Callable[..., LocalSession]
START = datetime(2026, 11, 1, tzinfo=UTC)
ROWS = pa.table({"ts": [START + timedelta(seconds=5 * n) for n in range(6)], "k": [1] * 6, "v": list(range(6))})
TOTAL = "SELECT k, sum(v) AS s, window.start AS w FROM events GROUP BY k, window(ts, '10 seconds')"
ALL = "SELECT k, v FROM events WHERE v >= 0"


def lines(caplog: pytest.LogCaptureFixture, part: str = "") -> list[str]:
    return [r.getMessage() for r in caplog.records if r.name.startswith(f"thalweg.{part}")]


@pytest.fixture(autouse=True)
def _at_info(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "thalweg")


def test_a_line_is_one_line_of_words() -> None:
    facts = {"query": "a", "error": 'two "lines"\nof it', "seconds": 1.0, "none": None, "streams": ("b", "a"), "n": 0}
    said = log.line("query_failed", facts)
    assert said == 'query_failed query=a error="two \\"lines\\"\\nof it" seconds=1.000 streams=a,b n=0'
    assert "\x1b" not in log.line("x", {"name": "\x1b[31m"})
    assert len(log.line("x", {"error": "y" * 10_000})) < 1100


def test_a_session_tells_what_comes_and_goes(local: Open, caplog: pytest.LogCaptureFixture) -> None:
    session = local({"events": ROWS}, {"revenue": TOTAL})
    session.run_available()
    session.drop_query("revenue")
    session.run_available()
    session.stop()
    said = [line.split()[0] + " " + " ".join(line.split()[1:2]) for line in lines(caplog) if "batch_done" not in line]
    assert said[0].startswith("connected place=memory://")
    assert said[1:4] == ["stream_created stream=events", "query_created query=revenue", "pipeline_started batch=0"]
    assert "query_runs query=revenue" in said
    assert "query_dropped query=revenue" in said
    assert "query_gone query=revenue" in said
    assert said[-2].startswith("pipeline_ended batch=")
    assert said[-1].startswith("stopped place=memory://")
    done = [line for line in lines(caplog, "batch") if line.startswith("batch_done")]
    assert done[0].startswith("batch_done batch=0 rows=6 ")


def test_a_query_that_fails_is_an_error_with_its_batch(local: Open, caplog: pytest.LogCaptureFixture) -> None:
    session = local({"events": ROWS}, {"revenue": TOTAL})
    session.run_available()
    manifest, report = session._parts.runner.manifest, session._parts.runner.reports[-1]
    queries = {id_: replace(entry, state="failed", error="no room") for id_, entry in manifest.queries.items()}
    after = replace(manifest, batch=7, queries=queries)
    caplog.clear()
    tell_batch(manifest, after, report)
    tell_batch(after, replace(after, batch=8), report)  # once
    failed = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert [record.getMessage() for record in failed] == ['query_failed query=revenue batch=7 error="no room"']


def test_a_pipeline_that_dies_says_why(local: Open, caplog: pytest.LogCaptureFixture) -> None:
    session = local({"events": ROWS}, {"revenue": TOTAL})

    def broken(*args: Any) -> None:
        raise RuntimeError("the disk is gone")

    session._parts.runner.runner.run = broken
    with pytest.raises(thalweg.ThalwegError):
        session.run_available()
    assert [line for line in lines(caplog, "pipeline") if line.startswith("pipeline_failed")] == [
        'pipeline_failed batch=0 error="RuntimeError: the disk is gone"'
    ]


def test_recovery_says_what_sinks_are_given_again(local: Open, caplog: pytest.LogCaptureFixture) -> None:
    """The session dies after the manifest, before its sinks."""
    storage, given = MemoryStorage("memory://recovery"), []
    session = local({"events": ROWS}, state_dir=storage)
    session.create_query("revenue", TOTAL, lambda table, batch: given.append(batch))

    def die() -> None:
        raise SystemError("killed")

    session._parts.runner.deliver = die
    while not session._parts.runner.manifest.undelivered:
        with pytest.raises(thalweg.ThalwegError):
            session.run_available()
        session._parts.runner.undelivered = ()
    batch = session._parts.runner.manifest.batch
    session.stop()
    caplog.clear()
    with local(state_dir=storage) as again:
        again.create_query("revenue", TOTAL, lambda table, batch: given.append(batch))
        again.run_available()
    said = lines(caplog, "pipeline")
    assert said[0] == f"state_taken_up batch={batch} queries=1 undelivered=1"
    repeats = [line for line in said if line.startswith("results_given_again")]
    assert [line.rpartition(" rows=")[0] for line in repeats] == [f"results_given_again query=revenue batch={batch}"]
    assert given[0] == batch


@pytest.mark.parametrize(("part", "of"), [(AssignSlots, "slot_assignment"), (OrderProbes, "probe_orders")])
def test_an_optimiser_that_fails_is_a_warning(
    local: Open, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, part: type, of: str
) -> None:
    session = local({"events": ROWS}, {"revenue": TOTAL})

    def fail(*args: Any) -> None:
        raise ZeroDivisionError("in the model")

    monkeypatch.setattr(part, "observe", fail)
    session.run_available()
    assert f'measuring_failed of={of} batch=0 error="ZeroDivisionError: in the model"' in lines(caplog, "adapt")


def test_partitioners_that_cannot_learn_are_a_warning(
    local: Open, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: Any) -> None:
        raise ZeroDivisionError("in the model")

    monkeypatch.setattr("thalweg.adapt.partitioners.next_policies", fail)
    local({"events": ROWS}, {"revenue": TOTAL}).run_available()
    assert any(line.startswith("measuring_failed of=partitioners batch=0") for line in lines(caplog, "adapt"))


def test_another_plan_is_told(local: Open, caplog: pytest.LogCaptureFixture) -> None:
    session = local({"events": ROWS}, {"revenue": TOTAL})
    session.run_available()
    session.create_query("all", ALL)
    session.run_available()
    assert sum(line.startswith("plan_changed batch=") for line in lines(caplog, "batch")) == 1


def test_a_directory_that_is_gone_is_told_once(local: Open, caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    session = local()
    source = thalweg.files(str(folder / "*.csv"))
    session.create_stream(
        "events", source, time="ts", watermark="1 second", schema="ts timestamp, k bigint, v bigint"
    )
    session.create_query("revenue", TOTAL)
    folder.rmdir()
    session.run_available()
    session.run_available()
    folder.mkdir()
    session.run_available()
    assert [line.split()[0] for line in lines(caplog, "source")] == ["directory_gone", "directory_back"]


def test_a_file_that_changes_after_it_was_read_is_told_once(
    local: Open, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """What has come since is never read. Also while nobody looked: after a restart."""
    folder, state_dir = tmp_path / "in", tmp_path / "state"
    folder.mkdir()
    for name in ("a", "b", "gone"):
        (folder / f"{name}.csv").write_text("ts,k,v\n2026-01-01T00:00:00,1,1")

    def open_session() -> Any:
        session = local(state_dir=state_dir)
        source = thalweg.files(str(folder / "*.csv"))
        session.create_stream(
            "events", source, time="ts", watermark="1 second", schema="ts timestamp, k bigint, v bigint"
        )
        return session

    session = open_session()
    session.create_query("revenue", TOTAL)
    session.run_available()
    with (folder / "a.csv").open("a") as file:
        file.write("2\n2026-01-01T00:00:00,1,1\n")
    (folder / "gone.csv").unlink()
    for _ in range(3):
        session.run_available()
    [told] = lines(caplog, "source")
    assert told.startswith("file_changed_after_it_was_read stream=events")
    assert "/a.csv bytes_read=30 bytes_now=56" in told
    session.stop()
    (folder / "b.csv").write_text("ts,k,v\n2026-01-01T00:00:00,1,2")
    (folder / "c.csv").write_text("ts,k,v\n2026-01-01T00:00:00,1,1")
    session = open_session()
    for _ in range(3):
        session.run_available()
    assert ["/b.csv" in line for line in lines(caplog, "source")[1:]].count(True) == 1


def test_every_event_is_in_the_docs() -> None:
    root = Path(thalweg.__file__).parent
    text = (root.parents[1] / "docs" / "operating.md").read_text()
    event = re.compile(r"log\.(?:debug|info|warning|error)\(\s*(\w+|\"\w+\"),\s*\"(\w+)\"")
    found = {e[1] for path in root.rglob("*.py") for e in event.findall(path.read_text())}
    assert {"query_paused", "set_aside", "batch_done"} <= found
    assert [name for name in sorted(found) if f"`{name}`" not in text] == []


@pytest.mark.slow
def test_nothing_is_printed_unasked() -> None:
    program = "import thalweg; from thalweg.observe import log; log.error('batch', 'query_failed', query='q')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")


@pytest.mark.slow
def test_run_shows_it_on_stderr_when_asked() -> None:
    program = (
        "import sys; from thalweg.cli.main import _log; from thalweg.observe import log; _log(int(sys.argv[1]));"
        "log.debug('batch', 'batch_done'); log.info('session', 'connected')"
    )
    for level, said in (("0", []), ("1", ["connected"]), ("2", ["batch_done", "connected"])):
        done = subprocess.run([sys.executable, "-c", program, level], capture_output=True, text=True, check=True)
        assert [line.split()[-1] for line in done.stderr.splitlines()] == said
        assert done.stdout == ""


def test_decisions_that_change_are_told(local: Open, caplog: pytest.LogCaptureFixture) -> None:
    session = local({"events": ROWS}, {"revenue": TOTAL})
    session.run_available()
    manifest, report = session._parts.runner.manifest, session._parts.runner.reports[-1]
    measured = manifest.measured
    orders = structs.replace(measured.probe_orders, ordering={"changed": 1})
    moves = structs.replace(measured.slot_assignment, moves=KeyGroupMoves(1, 7, 2))
    changed = structs.replace(measured, probe_orders=orders, slot_assignment=moves)
    caplog.clear()
    tell_batch(manifest, replace(manifest, measured=changed), report)
    said = lines(caplog, "batch")
    assert said[0].endswith("moved=7 switches=2")
    assert [line.split()[0] for line in said] == ["key_groups_moved", "join_orders_changed", "batch_done"]


def test_an_optimiser_that_fails_in_its_thread_is_a_warning(
    local: Open, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: Any, **options: Any) -> None:
        raise ZeroDivisionError("in the model")

    monkeypatch.setattr(AssignSlots, "due", lambda *_: "a case asks")
    monkeypatch.setattr("thalweg.adapt.slot_assignment.question.decide", fail)
    session = local({"events": ROWS}, {"revenue": TOTAL}, repartition="1 second")
    session.run_available()
    session._parts.runner.adaptations.wait()
    assert 'optimiser_failed of=slot_assignment error="ZeroDivisionError: in the model"' in lines(caplog, "adapt")
